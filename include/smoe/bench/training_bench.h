// The measurements behind smoe-bench train, forward, budgets and softtopk: this library beside compositions
// of LibTorch's own operators in the same process, with the same allocator, threads and weights.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "smoe/bench/bench_config.h"
#include "smoe/bench/speed_report.h"
#include "smoe/bench/stock_model.h"

namespace smoe {

struct SpeedOptions {
  BenchConfig config;
  int64_t repetitions = 5;
  std::vector<StockExperts> stock = {StockExperts::kMaskedDense, StockExperts::kGathered,
                                     StockExperts::kGrouped};
  uint64_t seed = 1;
  bool measure_peak = true;  // of the matmul, of which rates are shares
};

// A whole optimizer step: every budget forward and backward, gradient norm, clipping, AdamW.
SpeedReport run_train_bench(const SpeedOptions& options);

// Forward and cross-entropy without gradients, at every budget and with all experts.
SpeedReport run_forward_bench(const SpeedOptions& options);

// Forward and backward at every budget and segment length, beside the dense model of equal active size. The
// widths are not quite equal, so that cost_per_flop() compares better than the times themselves.
SpeedReport run_budget_bench(const SpeedOptions& options, const std::vector<int64_t>& segment_lengths);

struct SoftTopKAccuracy {
  double temperature = 0;
  double exact_error = 0;  // largest difference to the float64 solution
  double loop_error = 0;   // of the 20-iteration loop
};
struct SoftTopKReport {
  SpeedReport speed;
  std::vector<SoftTopKAccuracy> accuracy;
};
// SoftTopK of all segments, layers and budgets of a step, forward and backward, beside the iteration of 20
// rounds under autograd.
SoftTopKReport run_soft_top_k_bench(const SpeedOptions& options, const std::vector<double>& temperatures);
std::string accuracy_table(const SoftTopKReport& report);

}  // namespace smoe
