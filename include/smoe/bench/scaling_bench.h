// The measurement behind smoe-bench scaling: what a training step costs along one axis at a time, the others
// as in the config, at one budget.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "smoe/bench/bench_config.h"
#include "smoe/bench/speed_report.h"
#include "smoe/core/config.h"

namespace smoe {

enum class ScalingAxis {
  kBudget,         // k of the same experts
  kSegmentLength,  // S
  kExperts,        // E at the same k: the cost should stay
  kLength,         // tokens a sequence, as many tokens a step
  kBatch,          // sequences a step
  kThreads,
};
template <>
struct EnumNames<ScalingAxis> {
  static constexpr std::array values = {
      enum_name(ScalingAxis::kBudget, "k"),    enum_name(ScalingAxis::kSegmentLength, "S"),
      enum_name(ScalingAxis::kExperts, "E"),   enum_name(ScalingAxis::kLength, "length"),
      enum_name(ScalingAxis::kBatch, "batch"), enum_name(ScalingAxis::kThreads, "threads")};
};

struct ScalingBenchOptions {
  BenchConfig config;  // a stepped_moe
  std::vector<ScalingAxis> axes = {ScalingAxis::kBudget, ScalingAxis::kSegmentLength, ScalingAxis::kExperts,
                                   ScalingAxis::kLength, ScalingAxis::kBatch,         ScalingAxis::kThreads};
  std::string budget;       // by name or k; empty: the one in the middle
  int64_t max_threads = 2;  // of the axis `threads`, which begins at 1
  int64_t repetitions = 3;
  bool measure_peak = true;  // of the matmul, of which rates are shares
  uint64_t seed = 1;
};

// Points of an axis, ascending, for a config whose only budget is the measured one.
std::vector<int64_t> scaling_points(const BenchConfig& config, ScalingAxis axis, int64_t max_threads);

// For every point three rows with its labels (axis, value), measured in turns: "first" (the axis's first
// point once more), "step" (forward and backward, gradients summed as in training) and "optimizer" (norm,
// clipping and AdamW over all parameters, whatever the budget). Throws ConfigError for other architectures.
SpeedReport run_scaling_bench(const ScalingBenchOptions& options);

// One table an axis.
std::string scaling_tables(const SpeedReport& report);

}  // namespace smoe
