#include "bench_setup.h"

namespace smoe {
namespace {

// Gradients are thrown away: their sums grow with all parameters, not with the active ones.
void forward_backward(const BenchModel& setup, const ModelInput& input) {
  std::vector<at::Tensor> parameters;
  for (const NamedParameter& parameter : setup.model.parameters()) {
    if (parameter.tensor.requires_grad()) parameters.push_back(parameter.tensor);
  }
  library_loss(setup.model, setup.batch, input).backward();
  for (at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
}

}  // namespace

SpeedReport run_budget_bench(const SpeedOptions& options, const std::vector<int64_t>& segment_lengths) {
  std::vector<std::pair<SpeedRow, std::function<void()>>> rows;
  const auto stepped = std::make_shared<BenchModel>(options.config, options.seed);
  for (int64_t budget = 0; budget < std::ssize(options.config.model.budgets); ++budget) {
    SpeedRow row;
    row.bench = "budgets";
    row.labels["k"] =
        std::to_string(options.config.model.budgets[static_cast<size_t>(budget)].experts_per_layer);
    row.unique_tokens = options.config.bench.num_tokens();
    const auto add = [&](const std::string& name, const std::shared_ptr<BenchModel>& setup,
                         BenchConfig config) {
      const auto input = std::make_shared<ModelInput>(input_at_budget(setup->batch, config, budget));
      row.name = name;
      row.useful_flops = 3 * forward_flops(config, budget);
      rows.emplace_back(row, [setup, input] { forward_backward(*setup, *input); });
    };
    const BenchConfig dense = dense_of_equal_size(options.config, budget);
    add("dense", std::make_shared<BenchModel>(dense, options.seed), dense);
    for (const int64_t length : segment_lengths) {
      BenchConfig config = options.config;
      config.model.routing.segment_length = length;
      add("stepped S=" + std::to_string(length), stepped, config);
    }
  }
  return measure_rows(rows, options);
}

}  // namespace smoe
