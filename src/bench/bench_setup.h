// What the benches share: a model with a batch, and the stock compositions on its weights.
#pragma once

#include <utility>
#include <vector>

#include "smoe/bench/training_bench.h"
#include "smoe/model/model.h"

namespace smoe {

// The matmul peak is measured in turn with everything else, in samples of this many products.
inline constexpr int64_t kPeakProducts = 4;

struct BenchModel {
  BenchConfig config;
  Model model;
  Batch batch;

  BenchModel(const BenchConfig& bench_config, uint64_t seed)
      : config(bench_config), model(config.model, at::kCPU), batch(random_batch(config, seed)) {
    model.initialize(seed);
  }
};

// Runs the rows' bodies, and the matmul if its peak is wanted, in turn and fills in the samples.
SpeedReport measure_rows(std::vector<std::pair<SpeedRow, std::function<void()>>> rows,
                         const SpeedOptions& options);

// Sum of the batch's cross-entropies by this library's model.
at::Tensor library_loss(const Model& model, const Batch& batch, const ModelInput& input);

}  // namespace smoe
