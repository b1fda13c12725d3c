#include <ATen/record_function.h>
#include <fmt/format.h>

#include "bench_setup.h"
#include "smoe/bench/phases.h"

namespace smoe {
namespace {

// The config with a last budget of all experts, if it has none.
BenchConfig with_full_budget(BenchConfig config) {
  if (config.model.budgets.back().experts_per_layer < config.model.num_experts) {
    config.model.budgets.push_back({"all", config.model.num_experts});
  }
  return config;
}

}  // namespace

SpeedReport run_forward_bench(const SpeedOptions& options) {
  const BenchModel setup(with_full_budget(options.config), options.seed);
  const at::NoGradGuard no_gradients;
  std::vector<std::pair<SpeedRow, std::function<void()>>> rows;
  for (int64_t budget = 0; budget < std::ssize(setup.config.model.budgets); ++budget) {
    const auto input = std::make_shared<ModelInput>(input_at_budget(setup.batch, setup.config, budget));
    SpeedRow row;
    row.bench = "forward";
    row.labels["k"] =
        std::to_string(setup.config.model.budgets[static_cast<size_t>(budget)].experts_per_layer);
    row.useful_flops = forward_flops(setup.config, budget);
    row.unique_tokens = setup.config.bench.num_tokens();
    row.name = "smoe";
    rows.emplace_back(row, [&setup, input] { library_loss(setup.model, setup.batch, *input); });
    for (const StockExperts experts : options.stock) {
      row.name = stock_name(experts);
      const auto stock = std::make_shared<StockModel>(setup.model, experts);
      rows.emplace_back(
          row, [&setup, stock, input] { stock->loss(stock->forward(*input), setup.batch.targets_BT); });
    }
  }
  SpeedReport report = measure_rows(rows, options);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (report.rows[i].name != "smoe") continue;
    const PhaseRecorder recorder;
    {
      RECORD_USER_SCOPE("smoe::other forward");
      rows[i].second();
    }
    report.rows[i].phase_s = recorder.seconds();
  }
  return report;
}

}  // namespace smoe
