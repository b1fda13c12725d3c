#include "smoe/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// Where `step` lies between `begin` and `end`, clamped to [0, 1]; past an empty interval it is 1.
double fraction_of(double step, double begin, double end) {
  if (end <= begin) return step >= end ? 1.0 : 0.0;
  return std::clamp((step - begin) / (end - begin), 0.0, 1.0);
}

}  // namespace

double schedule_multiplier(const ScheduleConfig& config, int64_t step, int64_t total_steps) {
  SMOE_ASSERT(step >= 0 && total_steps >= 1);
  const double now = static_cast<double>(step);
  const double warmup = static_cast<double>(config.warmup_steps);
  const double total = static_cast<double>(total_steps);
  if (now < warmup) return now / warmup;
  switch (config.kind) {
    case ScheduleKind::kCosine: {
      const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * fraction_of(now, warmup, total)));
      return config.final_fraction + (1.0 - config.final_fraction) * cosine;
    }
    case ScheduleKind::kWarmupStableDecay: {
      const double decay_begin = total * (1.0 - config.decay_fraction);
      return 1.0 - (1.0 - config.final_fraction) * fraction_of(now, decay_begin, total);
    }
    case ScheduleKind::kConstant:
      return 1.0;
    case ScheduleKind::kInverseSqrt: {
      const double origin = std::max(warmup, 1.0);
      return std::sqrt(origin / std::max(now, origin));
    }
  }
  SMOE_ASSERT(false);
  return 0.0;
}

}  // namespace smoe
