#include "random_scores.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>

#include "smoe/core/random.h"

namespace smoe {
namespace {

constexpr int64_t kRowsPerTask = 64;
// Keep the three uses of one seed apart.
constexpr uint64_t kScoreStream = 0x73636f7265;
constexpr uint64_t kNoiseStream = 0x6e6f697365;
constexpr uint64_t kChoiceStream = 0x63686f696365;

// Calls fill(generator, row) for every (segment, layer) with a generator of its own.
template <class Fill>
at::Tensor fill_rows(uint64_t seed, int64_t num_segments, int64_t num_layers, int64_t num_experts,
                     int64_t first_segment, const Fill& fill) {
  at::Tensor values_RE = at::empty({num_segments * num_layers, num_experts}, at::kFloat);
  float* const values = values_RE.mutable_data_ptr<float>();
  at::parallel_for(0, num_segments * num_layers, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto segment = static_cast<uint64_t>(first_segment + row / num_layers);
      const auto layer = static_cast<uint64_t>(row % num_layers);
      SplitMix64 generator(mix_seeds(seed, segment, layer));
      fill(generator, values + row * num_experts);
    }
  });
  return values_RE;
}

}  // namespace

at::Tensor random_scores(uint64_t seed, int64_t num_segments, int64_t num_layers, int64_t num_experts,
                         int64_t first_segment) {
  return fill_rows(mix_seeds(seed, kScoreStream), num_segments, num_layers, num_experts, first_segment,
                   [num_experts](SplitMix64& generator, float* row) {
                     for (int64_t i = 0; i < num_experts; ++i)
                       row[i] = static_cast<float>(generator.uniform());
                   });
}

at::Tensor gaussian_scores(uint64_t seed, int64_t num_segments, int64_t num_layers, int64_t num_experts,
                           int64_t first_segment) {
  return fill_rows(mix_seeds(seed, kNoiseStream), num_segments, num_layers, num_experts, first_segment,
                   [num_experts](SplitMix64& generator, float* row) {
                     // Box-Muller, two values a draw; 1 - uniform lies in (0, 1], where the logarithm is
                     // finite.
                     for (int64_t i = 0; i < num_experts; i += 2) {
                       const double radius = std::sqrt(-2 * std::log(1 - generator.uniform()));
                       const double angle = 2 * std::numbers::pi * generator.uniform();
                       row[i] = static_cast<float>(radius * std::cos(angle));
                       if (i + 1 < num_experts) row[i + 1] = static_cast<float>(radius * std::sin(angle));
                     }
                   });
}

at::Tensor random_segments(uint64_t seed, int64_t num_segments, double probability, int64_t first_segment) {
  at::Tensor random_Q = at::empty({num_segments}, at::kBool);
  bool* const random = random_Q.mutable_data_ptr<bool>();
  const uint64_t stream = mix_seeds(seed, kChoiceStream);
  for (int64_t q = 0; q < num_segments; ++q) {
    random[q] =
        SplitMix64(mix_seeds(stream, static_cast<uint64_t>(first_segment + q))).uniform() < probability;
  }
  return random_Q;
}

}  // namespace smoe
