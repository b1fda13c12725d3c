#include <ATen/record_function.h>

#include "bench_setup.h"
#include "smoe/bench/phases.h"
#include "smoe/train/gradient_accumulator.h"
#include "smoe/train/optimizer.h"

namespace smoe {
namespace {

// One model and optimizer that all contestants step in turn. The schedule's multiplier is 0, so that
// everything is computed and no weight moves.
class TrainBench {
 public:
  explicit TrainBench(const SpeedOptions& options)
      : setup_(options.config, options.seed),
        train_config_(bench_train_config(options.config)),
        optimizer_(train_config_.optimizer, setup_.model.parameters(), options.config.model.dim),
        accumulator_(setup_.model, train_config_) {}

  void library_step() {
    step([this] { accumulator_.accumulate(setup_.batch, {1, 0}, nullptr); });
  }

  void stock_step(const StockModel& stock) {
    const std::vector<double> weights = loss_weights(train_config_);
    const double denominator =
        static_cast<double>(setup_.batch.num_targets()) * static_cast<double>(weights.size());
    step([&] {
      for (int64_t budget = 0; budget < std::ssize(weights); ++budget) {
        const ModelInput input = input_at_budget(setup_.batch, setup_.config, budget);
        const at::Tensor sum = stock.loss(stock.forward(input), setup_.batch.targets_BT);
        (sum * (weights[static_cast<size_t>(budget)] / denominator)).backward();
      }
    });
  }

  const Model& model() const { return setup_.model; }

 private:
  void step(const std::function<void()>& accumulate) {
    {
      RECORD_USER_SCOPE("smoe::optimizer");
      optimizer_.zero_gradients();
    }
    {
      RECORD_USER_SCOPE("smoe::other forward");
      accumulate();
    }
    RECORD_USER_SCOPE("smoe::optimizer");
    optimizer_.clip_gradients(optimizer_.gradient_norm());
    optimizer_.step(0.0);
  }

  BenchModel setup_;
  TrainConfig train_config_;
  Optimizer optimizer_;
  GradientAccumulator accumulator_;
};

}  // namespace

SpeedReport run_train_bench(const SpeedOptions& options) {
  const BenchConfig& config = options.config;
  const int64_t before = reset_peak_memory();
  TrainBench bench(options);
  std::vector<std::pair<SpeedRow, std::function<void()>>> rows;
  SpeedRow row;
  row.bench = "train";
  for (int64_t budget = 0; budget < std::ssize(config.model.budgets); ++budget) {
    row.useful_flops += 3 * forward_flops(config, budget);
  }
  row.unique_tokens = config.bench.num_tokens();
  row.processed_tokens = row.unique_tokens * std::ssize(config.model.budgets);
  row.name = "smoe";
  rows.emplace_back(row, [&] { bench.library_step(); });
  for (const StockExperts experts : options.stock) {
    row.name = stock_name(experts);
    const auto stock = std::make_shared<StockModel>(bench.model(), experts);
    rows.emplace_back(row, [&bench, stock] { bench.stock_step(*stock); });
  }
  for (auto& [contestant, body] : rows) {
    reset_peak_memory();
    body();
    contestant.peak_memory_bytes = std::max<int64_t>(0, peak_memory_since_reset() - before);
  }
  SpeedReport report = measure_rows(rows, options);
  const PhaseRecorder recorder;
  bench.library_step();
  report.rows[0].phase_s = recorder.seconds();
  return report;
}

}  // namespace smoe
