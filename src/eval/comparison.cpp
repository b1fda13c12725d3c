#include "smoe/eval/comparison.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "smoe/core/error.h"
#include "smoe/core/json.h"
#include "smoe/core/table.h"
#include "smoe/eval/rows.h"

namespace smoe {
namespace {

struct Run {
  std::filesystem::path file;
  nlohmann::json results;
  std::vector<std::string> budgets;
};

Run read_run(const std::filesystem::path& file) {
  Run run{file, read_json_file(file), {}};
  const bool is_results = run.results.is_object() && run.results.contains("budgets") &&
                          run.results.contains("tasks") && run.results.contains("context");
  SMOE_CHECK(DataError, is_results, "{}: no results of smoe-eval (expected context, budgets and tasks)",
             file.string());
  for (const auto& budget : run.results["budgets"]) run.budgets.push_back(budget.at("name"));
  return run;
}

// The rows of a task by their line in the data file.
std::map<int64_t, nlohmann::json> read_samples(const Run& run, const std::string& task) {
  const nlohmann::json& entry = run.results.at("tasks").at(task);
  SMOE_CHECK(DataError, entry.contains("samples"),
             "{}: task {} was run without a log of its rows; run it again with --samples", run.file.string(),
             task);
  std::filesystem::path log = entry["samples"].get<std::string>();
  // Results and logs may have been moved together.
  for (const auto& moved : {run.file.parent_path() / log.parent_path().filename() / log.filename(),
                            run.file.parent_path() / log.filename()}) {
    if (!std::filesystem::is_regular_file(log)) log = moved;
  }
  std::map<int64_t, nlohmann::json> rows;
  for (const Row& row : read_rows(log, 0)) {
    if (row.text("task") == task) rows[row.value().at("line").get<int64_t>()] = row.value().at("budgets");
  }
  return rows;
}

using BudgetPair = std::pair<std::string, std::string>;

std::vector<BudgetPair> budget_pairs(const Run& a, const Run& b, const ComparisonOptions& options) {
  const auto chosen = [](const Run& run, const std::optional<std::string>& name) {
    SMOE_CHECK(DataError, !name || std::ranges::count(run.budgets, *name) > 0,
               "{}: no budget `{}`; there are {}", run.file.string(), name.value_or(""),
               fmt::join(run.budgets, ", "));
    return name ? std::vector{*name} : run.budgets;
  };
  const std::vector<std::string> of_a = chosen(a, options.budget_a);
  const std::vector<std::string> of_b = chosen(b, options.budget_b);
  std::vector<BudgetPair> pairs;
  for (const std::string& name_a : of_a) {
    for (const std::string& name_b : of_b) {
      if (name_a == name_b || of_a.size() == 1 || of_b.size() == 1) pairs.emplace_back(name_a, name_b);
    }
  }
  SMOE_CHECK(DataError, !pairs.empty(),
             "{} has the budgets {}, {} has {}; none are called alike, so name two with --budget-a and "
             "--budget-b",
             a.file.string(), fmt::join(of_a, ", "), b.file.string(), fmt::join(of_b, ", "));
  return pairs;
}

void add_row(const nlohmann::json& sample, const std::string& metric, MetricSeries& series) {
  series.values.push_back(sample.at("metrics").at(metric).at(0));
  series.weights.push_back(sample.at("metrics").at(metric).at(1));
}

void compare_task(const Run& a, const Run& b, const std::string& task, const std::vector<BudgetPair>& pairs,
                  Comparison& comparison) {
  const auto samples_a = read_samples(a, task);
  const auto samples_b = read_samples(b, task);
  for (const auto& [metric, entry] : a.results.at("tasks").at(task).at("metrics").items()) {
    if (!b.results.at("tasks").at(task).at("metrics").contains(metric)) continue;
    for (const auto& [budget_a, budget_b] : pairs) {
      MetricSeries series_a;
      series_a.exponential = entry.at("exponential");
      MetricSeries series_b = series_a;
      for (const auto& [line, row] : samples_a) {
        const auto found = samples_b.find(line);
        if (found == samples_b.end()) continue;
        add_row(row.at(budget_a), metric, series_a);
        add_row(found->second.at(budget_b), metric, series_b);
      }
      if (series_a.values.empty()) continue;
      comparison.metrics.push_back({task, metric, budget_a, budget_b, entry.at("is_share"),
                                    std::ssize(series_a.values), estimate(series_a), estimate(series_b),
                                    paired_difference(series_a, series_b)});
    }
  }
  if (samples_a.size() != samples_b.size()) {
    comparison.warnings.push_back(
        fmt::format("{}: {} rows in one run, {} in the other; common ones are compared", task,
                    samples_a.size(), samples_b.size()));
  }
}

void warn_of_differences(const Run& a, const Run& b, Comparison& comparison) {
  for (const auto& [key, value] : a.results.at("context").items()) {
    // Different weights are what a comparison is for.
    if (key.starts_with("checkpoint") || key == "num_threads" || key == "batch_tokens" || key == "device") {
      continue;
    }
    const nlohmann::json& other = b.results.at("context").value(key, nlohmann::json());
    if (other != value) {
      comparison.warnings.push_back(fmt::format("{} differs: {} and {}", key, value.dump(), other.dump()));
    }
  }
  for (const auto& [name, task] : a.results.at("tasks").items()) {
    if (!b.results.at("tasks").contains(name)) continue;
    for (const char* key : {"task_config_sha256", "data_sha256", "num_fewshot"}) {
      if (task.at(key) != b.results.at("tasks").at(name).at(key)) {
        comparison.warnings.push_back(fmt::format("{}: {} differs", name, key));
      }
    }
  }
}

std::string cell(const ComparedMetric& metric, const Estimate& estimate, bool with_sign) {
  const double scale = metric.is_share ? 100.0 : 1.0;
  const int digits = metric.is_share ? 2 : 4;
  return fmt::format("{}{:.{}f} ±{:.{}f}", with_sign && estimate.value >= 0.0 ? "+" : "",
                     scale * estimate.value, digits, scale * estimate.standard_error, digits);
}

Comparison compare_runs(const Run& run_a, const Run& run_b, const ComparisonOptions& options) {
  const std::vector<BudgetPair> pairs = budget_pairs(run_a, run_b, options);
  Comparison comparison;
  warn_of_differences(run_a, run_b, comparison);
  for (const auto& [task, entry] : run_a.results.at("tasks").items()) {
    if (run_b.results.at("tasks").contains(task)) compare_task(run_a, run_b, task, pairs, comparison);
  }
  SMOE_CHECK(DataError, !comparison.metrics.empty(), "{} and {} have no scored task in common",
             run_a.file.string(), run_b.file.string());
  return comparison;
}

}  // namespace

Comparison compare_evaluations(const std::filesystem::path& a, const std::filesystem::path& b,
                               const ComparisonOptions& options) {
  try {
    return compare_runs(read_run(a), read_run(b), options);
  } catch (const nlohmann::json::exception& error) {
    // A key that is missing or of another type: the files were edited, or written by something else.
    throw DataError(
        fmt::format("{} or {}, or the log of rows of one of them, is not as smoe-eval writes it: {}; "
                    "run the evaluation again",
                    a.string(), b.string(), error.what()));
  }
}

std::string to_terminal_table(const Comparison& comparison) {
  Table table({"task", "metric", "budgets", "rows", "A", "B", "B - A", "z"});
  std::string last_task;
  for (const ComparedMetric& metric : comparison.metrics) {
    if (!last_task.empty() && metric.task != last_task) table.add_separator();
    const std::string budgets = metric.budget_a == metric.budget_b
                                    ? metric.budget_a
                                    : fmt::format("{} / {}", metric.budget_a, metric.budget_b);
    const double error = metric.difference.standard_error;
    const std::string z = error > 0.0 ? fmt::format("{:+.1f}", metric.difference.value / error) : "";
    table.add_row({metric.task == last_task ? "" : metric.task, metric.metric, budgets,
                   std::to_string(metric.num_rows), cell(metric, metric.a, false),
                   cell(metric, metric.b, false), cell(metric, metric.difference, true), z});
    last_task = metric.task;
  }
  std::string text =
      table.to_terminal() +
      "Shares in percent; ± is one standard error, of B - A that of the paired difference; z is "
      "B - A in standard errors.\n";
  for (const std::string& warning : comparison.warnings) text += "note: " + warning + "\n";
  return text;
}

}  // namespace smoe
