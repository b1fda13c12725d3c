#include "smoe/bench/bench_config.h"

#include "smoe/model/parameter_counts.h"
#include "smoe/train/model_input.h"

namespace smoe {

Batch random_batch(const BenchConfig& config, uint64_t seed) {
  at::manual_seed(seed);
  const at::Tensor tokens = at::randint(
      config.model.vocab_size, {config.bench.sequences, config.bench.sequence_length + 1}, at::kLong);
  Batch batch;
  batch.tokens_BT = tokens.narrow(1, 0, config.bench.sequence_length).contiguous();
  batch.targets_BT = tokens.narrow(1, 1, config.bench.sequence_length).contiguous();
  batch.loss_mask_BT = at::ones_like(batch.tokens_BT, at::kBool);
  batch.sources.assign(static_cast<size_t>(config.bench.sequences), 0);
  return batch;
}

ModelInput input_at_budget(const Batch& batch, const BenchConfig& config, int64_t budget) {
  const std::vector<int64_t> budgets(static_cast<size_t>(batch.num_rows()), budget);
  return make_model_input(batch, config.model.routing.segment_length, budgets, at::kCPU,
                          config.model.routing.selector_position);
}

TrainConfig bench_train_config(const BenchConfig& config) {
  TrainConfig train;
  train.model = config.model;
  train.batch_size = config.bench.sequences;
  train.micro_batch_size = config.bench.sequences;
  train.budget_sampling = BudgetSampling::kReplicate;
  return train;
}

double forward_flops(const BenchConfig& config, int64_t budget) {
  const ParameterCounts counts = count_parameters(config.model, config.bench.sequence_length);
  const size_t index = config.model.architecture == Architecture::kDense ? 0 : static_cast<size_t>(budget);
  return counts.budgets.at(index).forward_flops_per_token * static_cast<double>(config.bench.num_tokens());
}

BenchConfig dense_of_equal_size(const BenchConfig& config, int64_t budget) {
  const ParameterCounts counts = count_parameters(config.model, config.bench.sequence_length);
  const auto active =
      static_cast<double>(counts.budgets.at(static_cast<size_t>(budget)).active_non_embedding);
  BenchConfig dense = config;
  dense.model.architecture = Architecture::kDense;
  dense.model.dense_ffn_dim = solve_dense_ffn_dim(config.model, active);
  dense.model.num_dense_layers = config.model.num_layers();
  dense.model.num_moe_layers = 0;
  return dense;
}

}  // namespace smoe
