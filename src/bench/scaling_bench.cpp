#include "smoe/bench/scaling_bench.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "bench_setup.h"
#include "smoe/core/error.h"
#include "smoe/core/table.h"
#include "smoe/routing/budgets.h"
#include "smoe/train/gradient_accumulator.h"
#include "smoe/train/optimizer.h"

namespace smoe {
namespace {

// A training run of one point. Weights stay as they are: the schedule's multiplier is 0.
class Point {
 public:
  Point(const BenchConfig& config, uint64_t seed, int64_t num_threads)
      : setup_(config, seed),
        train_config_(bench_train_config(config)),
        optimizer_(train_config_.optimizer, setup_.model.parameters(), config.model.dim),
        accumulator_(setup_.model, train_config_),
        num_threads_(num_threads) {}

  void accumulate() {
    at::set_num_threads(static_cast<int>(num_threads_));
    optimizer_.zero_gradients();
    accumulator_.accumulate(setup_.batch, {1, 0}, nullptr);
  }
  void optimize() {
    at::set_num_threads(static_cast<int>(num_threads_));
    optimizer_.clip_gradients(optimizer_.gradient_norm());
    optimizer_.step(0.0);
  }

 private:
  BenchModel setup_;
  TrainConfig train_config_;
  Optimizer optimizer_;
  GradientAccumulator accumulator_;
  int64_t num_threads_;
};

BenchConfig at_point(BenchConfig config, ScalingAxis axis, int64_t value) {
  switch (axis) {
    case ScalingAxis::kBudget:
      config.model.budgets.front().experts_per_layer = value;
      break;
    case ScalingAxis::kSegmentLength:
      config.model.routing.segment_length = value;
      break;
    case ScalingAxis::kExperts:
      config.model.num_experts = value;
      break;
    case ScalingAxis::kLength:
      config.bench.sequences = config.bench.num_tokens() / value;
      config.bench.sequence_length = value;
      break;
    case ScalingAxis::kBatch:
      config.bench.sequences = value;
      break;
    case ScalingAxis::kThreads:
      break;
  }
  return config;
}

class ScalingBench {
 public:
  ScalingBench(const BenchConfig& config, const ScalingBenchOptions& options)
      : config_(config), options_(options), num_threads_(at::get_num_threads()) {
    if (options.measure_peak) {
      const std::vector<Samples> peak = measure_in_turns({matmul_peak(kPeakProducts)}, options.repetitions);
      report_.peak = matmul_peak_of(peak[0], kPeakProducts);
    }
    report_.num_threads = num_threads_;
  }
  ~ScalingBench() { at::set_num_threads(static_cast<int>(num_threads_)); }

  SpeedReport run() {
    for (const ScalingAxis axis : options_.axes) {
      const std::vector<int64_t> values = scaling_points(config_, axis, options_.max_threads);
      const auto first = make_point(axis, values.front());
      for (const int64_t value : values) {
        const auto point = value == values.front() ? first : make_point(axis, value);
        measure(axis, values.front(), *first, value, *point);
      }
    }
    return std::move(report_);
  }

 private:
  std::shared_ptr<Point> make_point(ScalingAxis axis, int64_t value) const {
    return std::make_shared<Point>(at_point(config_, axis, value), options_.seed,
                                   axis == ScalingAxis::kThreads ? value : num_threads_);
  }

  SpeedRow row_of(ScalingAxis axis, int64_t value, int64_t point) const {
    const BenchConfig config = at_point(config_, axis, point);
    SpeedRow row;
    row.bench = "scaling";
    row.labels = {{"axis", std::string(enum_to_name(axis))}, {"value", std::to_string(value)}};
    row.unique_tokens = config.bench.num_tokens();
    row.processed_tokens = row.unique_tokens;
    row.useful_flops = 3 * forward_flops(config, 0);
    return row;
  }

  // Only the first point and this one are in memory.
  void measure(ScalingAxis axis, int64_t first_value, Point& first, int64_t value, Point& point) {
    const std::vector<Samples> samples = measure_in_turns({{"first", [&] { first.accumulate(); }},
                                                           {"step", [&] { point.accumulate(); }},
                                                           {"optimizer", [&] { point.optimize(); }}},
                                                          options_.repetitions);
    const char* names[] = {"first", "step", "optimizer"};
    for (size_t i = 0; i < samples.size(); ++i) {
      SpeedRow row = row_of(axis, value, i == 0 ? first_value : value);
      row.name = names[i];
      row.samples = samples[i];
      if (i == 2) row.useful_flops = 0;
      report_.rows.push_back(row);
    }
  }

  const BenchConfig& config_;
  const ScalingBenchOptions& options_;
  int64_t num_threads_;
  SpeedReport report_;
};

// Positive multiples of `base`, in eighths, without repetitions.
std::vector<int64_t> eighths(int64_t base, const std::vector<int64_t>& numerators) {
  std::set<int64_t> values;
  for (const int64_t numerator : numerators) values.insert(std::max<int64_t>(1, base * numerator / 8));
  return {values.begin(), values.end()};
}

std::string peak_text(const SpeedRow& row, const MatmulPeak& peak) {
  return peak.per_core_s > 0 ? fmt::format("{:.1f}%", 100 * share_of_peak(row, peak)) : "-";
}

}  // namespace

std::vector<int64_t> scaling_points(const BenchConfig& config, ScalingAxis axis, int64_t max_threads) {
  const ModelConfig& model = config.model;
  std::vector<int64_t> points;
  switch (axis) {
    case ScalingAxis::kBudget:
      return eighths(model.num_experts, {1, 2, 4, 6, 8});
    case ScalingAxis::kSegmentLength:
      for (const int64_t length : {8, 16, 32, 64, 128}) {
        if (length <= config.bench.sequence_length) points.push_back(length);
      }
      if (points.empty()) points.push_back(model.routing.segment_length);
      break;
    case ScalingAxis::kExperts:
      points = eighths(model.num_experts, {4, 8, 16, 32});
      std::erase_if(points,
                    [&](int64_t experts) { return experts < model.budgets.front().experts_per_layer; });
      break;
    case ScalingAxis::kLength:
      for (int64_t length = 128; length <= config.bench.num_tokens() && length <= 4096; length *= 2) {
        if (config.bench.num_tokens() % length == 0) points.push_back(length);
      }
      if (points.empty()) points.push_back(config.bench.sequence_length);
      break;
    case ScalingAxis::kBatch:
      return eighths(config.bench.sequences, {2, 4, 8, 16});
    case ScalingAxis::kThreads:
      for (int64_t threads = 1; threads <= max_threads; threads *= 2) points.push_back(threads);
      break;
  }
  return points;
}

SpeedReport run_scaling_bench(const ScalingBenchOptions& options) {
  SMOE_CHECK(ConfigError, options.config.model.architecture == Architecture::kSteppedMoe,
             "the scaling benchmark needs a stepped_moe, found architecture {}",
             enum_to_name(options.config.model.architecture));
  BenchConfig config = options.config;
  const std::vector<BudgetConfig>& budgets = options.config.model.budgets;
  const int64_t chosen =
      options.budget.empty() ? std::ssize(budgets) / 2 : find_budget(budgets, options.budget);
  config.model.budgets = {budgets[static_cast<size_t>(chosen)]};
  return ScalingBench(config, options).run();
}

std::string scaling_tables(const SpeedReport& report) {
  std::string text = fmt::format("{} threads; ", report.num_threads);
  if (report.peak.per_core_s > 0) {
    text += fmt::format("fp32 matmul peak {:.1f} GFLOP/s a core; ", 1e-9 * report.peak.per_core_s);
  }
  text += "forward and backward at one budget\n";
  for (size_t begin = 0; begin < report.rows.size();) {
    const std::string& axis = report.rows[begin].labels.at("axis");
    Table table({axis, "tokens", "core ms", "wall ms", "useful GFLOP", "GFLOP/core s", "of peak",
                 "core x first", "per FLOP", "time x first", "optimizer core ms"});
    // Three rows a point.
    for (; begin < report.rows.size() && report.rows[begin].labels.at("axis") == axis; begin += 3) {
      const SpeedRow& step = report.rows[begin + 1];
      const Duration first = report.rows[begin].samples.median();
      const Duration median = step.samples.median();
      table.add_row({step.labels.at("value"), std::to_string(step.unique_tokens),
                     fmt::format("{:.1f}", 1e3 * median.core_s), fmt::format("{:.1f}", 1e3 * median.wall_s),
                     fmt::format("{:.1f}", 1e-9 * step.useful_flops),
                     fmt::format("{:.1f}", 1e-9 * step.useful_flops / median.core_s),
                     peak_text(step, report.peak), fmt::format("{:.2f}", median.core_s / first.core_s),
                     fmt::format("{:.2f}", cost_per_flop(report, step)),
                     fmt::format("{:.2f}", median.wall_s / first.wall_s),
                     fmt::format("{:.1f}", 1e3 * report.rows[begin + 2].samples.median().core_s)});
    }
    text += table.to_terminal();
  }
  return text;
}

}  // namespace smoe
