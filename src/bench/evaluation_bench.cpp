#include "smoe/bench/evaluation_bench.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "eval/prepared_task.h"
#include "naive_scorer.h"
#include "smoe/bench/stock_model.h"
#include "smoe/core/error.h"
#include "smoe/core/table.h"
#include "smoe/infer/prefix_cache.h"

namespace smoe {
namespace {

// One way to score all requests of a task at a budget.
struct ScoringContestant {
  std::string name;
  std::function<std::vector<RequestScore>(const std::vector<Request>& requests, int64_t budget)> score;
};

void check_options(const EvaluationBenchOptions& options, const Tokenizer& tokenizer) {
  SMOE_CHECK(ConfigError, options.model.architecture == Architecture::kSteppedMoe,
             "the evaluation benchmark needs a stepped_moe, found architecture {}",
             enum_to_name(options.model.architecture));
  SMOE_CHECK(
      ConfigError, tokenizer.vocab_size() <= options.model.vocab_size,
      "{}: {} tokens, but model.vocab_size is {}; use a smaller tokenizer, or --set model.vocab_size={}",
      options.tokenizer.string(), tokenizer.vocab_size(), options.model.vocab_size, tokenizer.vocab_size());
  for (const TaskConfig& task : options.tasks) {
    SMOE_CHECK(ConfigError, !is_generation(task.kind),
               "task {}: the kind {} generates answers; the benchmark scores continuations only", task.name,
               enum_to_name(task.kind));
  }
}

class EvaluationBench {
 public:
  explicit EvaluationBench(const EvaluationBenchOptions& options)
      : options_(options),
        tokenizer_(load_tokenizer(options.tokenizer)),
        packing_{options.batch_tokens, options.model.routing.segment_length, RoutingMode::kSegments},
        model_(options.model, at::kCPU) {
    check_options(options, *tokenizer_);
    model_.initialize(options.seed);
    stock_.emplace(model_, StockExperts::kGrouped);
    report_.speed.num_threads = at::get_num_threads();
  }

  EvaluationBenchReport run() {
    for (const TaskConfig& task : options_.tasks) {
      const PreparedTask prepared = prepare(task);
      for (int64_t budget = 0; budget < std::ssize(options_.model.budgets); ++budget)
        measure(prepared, budget);
    }
    return std::move(report_);
  }

 private:
  PreparedTask prepare(const TaskConfig& task) const {
    EvaluationOptions options;
    options.data_folder = options_.data_folder;
    options.num_shots = options_.num_shots;
    options.limit = options_.limit;
    options.max_length = options_.max_length;
    Scorer scorer(model_, packing_);
    const AnswerGenerator generator(model_, *tokenizer_, {});
    const int64_t unit = shareable_prefix_unit(options_.model, packing_.routing, packing_.segment_length);
    return prepare_task(task, {*tokenizer_, options, scorer, generator, nullptr, unit, nullptr});
  }

  std::vector<ScoringContestant> contestants() const {
    const auto naive = [this](const NaiveScorer::Forward& forward) {
      return [this, scorer = NaiveScorer(forward, model_.output_weight(), packing_.segment_length,
                                         options_.naive_rows)](const std::vector<Request>& requests,
                                                               int64_t budget) {
        return scorer.score(requests, budget);
      };
    };
    return {{"smoe",
             [this](const std::vector<Request>& requests, int64_t budget) {
               // A new one each time: it remembers prefixes.
               return Scorer(model_, packing_).score(requests, budget);
             }},
            {"naive", naive([this](const ModelInput& input) { return model_.forward(input).hidden_BTD; })},
            {"naive " + stock_name(StockExperts::kGrouped),
             naive([this](const ModelInput& input) { return stock_->forward(input); })}};
  }

  void measure(const PreparedTask& task, int64_t budget) {
    SpeedRow row;
    row.bench = "eval";
    row.labels = {
        {"task", task.config->name},
        {"k", std::to_string(options_.model.budgets[static_cast<size_t>(budget)].experts_per_layer)}};
    row.items = std::ssize(task.items);
    for (const Request& request : task.requests) {
      row.unique_tokens += std::ssize(request.context) + std::ssize(request.continuation);
    }
    std::vector<Contestant> turns;
    const auto scores = std::make_shared<std::vector<std::vector<RequestScore>>>();
    for (const ScoringContestant& contestant : contestants()) {
      const size_t index = turns.size();
      scores->emplace_back();
      turns.push_back({contestant.name, [&task, budget, contestant, scores, index] {
                         (*scores)[index] = contestant.score(task.requests, budget);
                       }});
    }
    const std::vector<Samples> samples = measure_in_turns(turns, options_.repetitions);
    for (size_t i = 0; i < turns.size(); ++i) {
      row.name = turns[i].name;
      row.samples = samples[i];
      report_.speed.rows.push_back(row);
      compare(row.name, scores->front(), (*scores)[i]);
    }
  }

  void compare(const std::string& name, const std::vector<RequestScore>& expected,
               const std::vector<RequestScore>& found) {
    double& largest = report_.largest_difference[name];
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i].sum - found[i].sum));
    }
  }

  const EvaluationBenchOptions& options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  PackingOptions packing_;
  Model model_;
  std::optional<StockModel> stock_;
  EvaluationBenchReport report_;
};

}  // namespace

EvaluationBenchReport run_evaluation_bench(const EvaluationBenchOptions& options) {
  return EvaluationBench(options).run();
}

std::string evaluation_bench_table(const EvaluationBenchReport& report) {
  Table table({"task", "k", "contestant", "rows/s", "rows/core s", "tok/core s", "core ms", "time x smoe",
               "core x smoe"});
  std::map<std::string, std::pair<double, int64_t>> logarithms;
  for (const SpeedRow& row : report.speed.rows) {
    const Duration median = row.samples.median();
    const Duration reference = reference_row(report.speed, row).samples.median();
    const auto rate = [](int64_t count, double seconds) {
      return fmt::format("{:.1f}", static_cast<double>(count) / seconds);
    };
    table.add_row({row.labels.at("task"), row.labels.at("k"), row.name, rate(row.items, median.wall_s),
                   rate(row.items, median.core_s), rate(row.unique_tokens, median.core_s),
                   fmt::format("{:.1f}", 1e3 * median.core_s),
                   fmt::format("{:.2f}", median.wall_s / reference.wall_s),
                   fmt::format("{:.2f}", median.core_s / reference.core_s)});
    logarithms[row.name].first += std::log(median.core_s / reference.core_s);
    ++logarithms[row.name].second;
  }
  std::string text = table.to_terminal();
  for (const auto& [name, sum] : logarithms) {
    if (name == "smoe") continue;
    text += fmt::format(
        "{}: {:.2f} times the core-seconds of smoe (geometric mean); largest difference of a sum {:.1e}\n",
        name, std::exp(sum.first / static_cast<double>(sum.second)), report.largest_difference.at(name));
  }
  return text;
}

}  // namespace smoe
