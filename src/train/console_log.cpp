#include "smoe/train/console_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "smoe/core/progress.h"

namespace smoe {
namespace {

// Flushed at once: a log that is watched through a pipe must not lag behind.
void print_line(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

struct MetricValues {
  std::string name;
  std::vector<std::pair<std::string, double>> values;  // by budget
};

}  // namespace

std::string describe_step(const StepReport& report) {
  std::string losses;
  for (size_t i = 0; i < report.losses.size(); ++i) {
    if (report.losses[i]) losses += fmt::format(" {} {:.3f}", report.budgets[i], *report.losses[i]);
  }
  return fmt::format(
      "step {}/{}  loss{}  lr {:.1e}  norm {:.2f}{}  {} tok/s  {}  ETA {}", report.step, report.total_steps,
      losses, report.learning_rate, report.gradient_norm, report.skipped ? " (outlier, update skipped)" : "",
      format_count(report.processed_tokens_per_s),
      format_bytes(static_cast<double>(report.peak_memory_bytes)), format_duration(report.remaining_s));
}

std::string describe_validation(const ValidationReport& report) {
  std::string text = fmt::format("step {}  validation", report.step);
  for (const SourceValidation& source : report.sources) {
    text += fmt::format("  {}:", source.name);
    for (size_t i = 0; i < source.losses.size(); ++i) {
      text += fmt::format(" {} {:.3f}", report.budgets[i], source.losses[i]);
      if (source.bits_per_byte[i] > 0.0) text += fmt::format(" ({:.3f} bits/byte)", source.bits_per_byte[i]);
    }
  }
  for (size_t i = 0; i < report.nesting.size(); ++i) {
    text +=
        fmt::format("  nesting {} in {} {:.2f}", report.budgets[i], report.budgets[i + 1], report.nesting[i]);
  }
  return text;
}

std::string describe_evaluation(int64_t step, const std::map<std::string, double>& results,
                                const std::vector<std::string>& budgets) {
  // Results are sorted by name, so that those of a metric, which differ after the last slash, are neighbours.
  std::vector<MetricValues> metrics;
  for (const auto& [name, value] : results) {
    const size_t slash = name.rfind('/');
    const std::string metric = name.substr(0, slash);
    if (metrics.empty() || metrics.back().name != metric) metrics.push_back({metric, {}});
    metrics.back().values.emplace_back(slash == std::string::npos ? "" : name.substr(slash + 1), value);
  }
  const auto place = [&budgets](const std::pair<std::string, double>& value) {
    return std::ranges::find(budgets, value.first) - budgets.begin();
  };
  std::string text;
  for (MetricValues& metric : metrics) {
    std::ranges::stable_sort(metric.values, {}, place);
    text += fmt::format("{}step {}  evaluation  {}", text.empty() ? "" : "\n", step, metric.name);
    for (const auto& [budget, value] : metric.values) text += fmt::format("  {} {:.4f}", budget, value);
  }
  return text;
}

void ConsoleLog::on_step(const StepReport& report) { print_line(describe_step(report)); }

void ConsoleLog::on_validation(const ValidationReport& report) { print_line(describe_validation(report)); }

void ConsoleLog::on_evaluation(int64_t step, const std::map<std::string, double>& results) {
  if (!results.empty()) print_line(describe_evaluation(step, results, budgets_));
}

void ConsoleLog::on_rollback(const RollbackReport& report) {
  print_line(fmt::format("step {}  failed: rolled back to step {}, sequences {} to {} are left out",
                         report.failed_step, report.to_step, report.from_position, report.to_position - 1));
}

}  // namespace smoe
