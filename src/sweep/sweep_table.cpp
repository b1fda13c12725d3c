#include "smoe/sweep/sweep_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "smoe/core/progress.h"
#include "smoe/core/table.h"

namespace smoe {
namespace {

std::string number_text(double value, MetricUnit unit) {
  switch (unit) {
    case MetricUnit::kShare:
      return fmt::format("{:.2f}", 100.0 * value);
    case MetricUnit::kCount:
      return std::abs(value) < 1e4 ? fmt::format("{:.4g}", value) : fmt::format("{:.3e}", value);
    case MetricUnit::kNats:
    case MetricUnit::kPlain:
      return fmt::format("{:.4f}", value);
  }
  return {};
}

// The cell as text; `plus_minus` stands between mean and spread.
std::string cell_text(const SweepCell& cell, const SweepColumn& column, const char* plus_minus) {
  if (cell.empty()) return "-";
  const MeanAndSpread statistics = mean_and_spread(cell);
  std::string text = number_text(statistics.mean, column.unit);
  if (cell.size() > 1) text += plus_minus + number_text(statistics.spread, column.unit);
  return text;
}

std::string difference_text(const SweepCell& cell, const SweepCell& reference, const SweepColumn& column,
                            const char* plus_minus) {
  const std::optional<PairedDifference> difference = paired_difference(cell, reference);
  if (!difference) return "";
  std::string text = (difference->mean >= 0.0 ? "+" : "") + number_text(difference->mean, column.unit);
  if (difference->standard_error) text += plus_minus + number_text(*difference->standard_error, column.unit);
  return text;
}

// The lines of the table as text: a row and, with a reference, its differences.
std::vector<std::vector<std::string>> text_rows(const SweepTable& table, const std::string& reference,
                                                const char* plus_minus) {
  const auto found = std::ranges::find(table.rows, reference, &SweepTableRow::name);
  std::vector<std::string> names;
  for (const SweepTableRow& row : table.rows) names.push_back(row.name);
  SMOE_CHECK(ConfigError, reference.empty() || found != table.rows.end(), "there is no row `{}`, only [{}]",
             reference, fmt::join(names, ", "));
  std::vector<std::vector<std::string>> lines;
  for (const SweepTableRow& row : table.rows) {
    std::vector<std::string>& line = lines.emplace_back(1, row.name);
    for (size_t i = 0; i < table.columns.size(); ++i) {
      line.push_back(cell_text(row.cells[i], table.columns[i], plus_minus));
    }
    if (reference.empty() || row.name == reference) continue;
    std::vector<std::string>& change = lines.emplace_back(1, "  less " + reference);
    for (size_t i = 0; i < table.columns.size(); ++i) {
      change.push_back(difference_text(row.cells[i], found->cells[i], table.columns[i], plus_minus));
    }
  }
  return lines;
}

Table build_table(const SweepTable& table, const std::string& reference) {
  std::vector<std::string> header = {"row"};
  for (const SweepColumn& column : table.columns) {
    header.push_back(column.budget == "run" ? column.metric : column.metric + " " + column.budget);
  }
  Table result(header);
  for (std::vector<std::string>& line : text_rows(table, reference, " ±")) result.add_row(std::move(line));
  return result;
}

// "3 seeds", or, where runs are missing, how many of them the cells hold.
std::string seeds_text(const SweepTable& table) {
  size_t least = static_cast<size_t>(table.num_seeds);
  size_t most = 0;
  for (const SweepTableRow& row : table.rows) {
    for (const SweepCell& cell : row.cells) {
      if (cell.empty()) continue;
      least = std::min(least, cell.size());
      most = std::max(most, cell.size());
    }
  }
  const std::string all = fmt::format("{} seed{}", table.num_seeds, table.num_seeds == 1 ? "" : "s");
  if (most == 0 || static_cast<int64_t>(least) == table.num_seeds) return all;
  return fmt::format("the finished ones of {} ({} to {} a cell)", all, least, most);
}

std::string legend(const SweepTable& table) {
  const bool has_spread = table.num_seeds > 1;
  return fmt::format("Mean{} over {}; shares in percent{}.", has_spread ? " ± standard deviation" : "",
                     seeds_text(table),
                     has_spread ? "; differences are paired by seed, ± standard error" : "");
}

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string latex_escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("&%$#_{}").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Columns of one metric are neighbours: the number of them from `first` on.
size_t columns_of_metric(const SweepTable& table, size_t first) {
  size_t count = 1;
  while (first + count < table.columns.size() &&
         table.columns[first + count].metric == table.columns[first].metric) {
    ++count;
  }
  return count;
}

void add_values(SweepTable& table, size_t row, const std::string& label, int64_t seed,
                const RunMetric& metric) {
  for (const auto& [budget, value] : metric.values) {
    size_t column = 0;
    size_t after_metric = table.columns.size();
    for (; column < table.columns.size(); ++column) {
      if (table.columns[column].metric != label) continue;
      if (table.columns[column].budget == budget) break;
      after_metric = column + 1;
    }
    if (column == table.columns.size()) {
      column = after_metric;
      const auto place = static_cast<std::ptrdiff_t>(column);
      table.columns.insert(table.columns.begin() + place, {label, budget, metric.unit});
      for (SweepTableRow& other : table.rows) other.cells.insert(other.cells.begin() + place, SweepCell{});
    }
    table.rows[row].cells[column][seed] = value;
  }
}

}  // namespace

MeanAndSpread mean_and_spread(const SweepCell& cell) {
  MeanAndSpread result;
  const double count = static_cast<double>(cell.size());
  for (const auto& [seed, value] : cell) result.mean += value / count;
  if (cell.size() < 2) return result;
  double squares = 0.0;
  for (const auto& [seed, value] : cell) squares += (value - result.mean) * (value - result.mean);
  result.spread = std::sqrt(squares / (count - 1.0));
  return result;
}

std::optional<PairedDifference> paired_difference(const SweepCell& cell, const SweepCell& reference) {
  SweepCell differences;
  for (const auto& [seed, value] : cell) {
    if (const auto other = reference.find(seed); other != reference.end())
      differences[seed] = value - other->second;
  }
  if (differences.empty()) return std::nullopt;
  const MeanAndSpread statistics = mean_and_spread(differences);
  PairedDifference result{statistics.mean, std::nullopt};
  if (differences.size() > 1) {
    result.standard_error = statistics.spread / std::sqrt(static_cast<double>(differences.size()));
  }
  return result;
}

SweepTable collect_table(const SweepPlan& plan) {
  SweepTable table;
  table.num_seeds = static_cast<int64_t>(plan.config.seeds.size());
  for (const PlannedRun& run : plan.runs) {
    if (table.rows.empty() || table.rows.back().name != run.row_name) {
      table.rows.push_back({run.row_name, run.axis_values, std::vector<SweepCell>(table.columns.size())});
    }
    for (const SweepMetric& metric : plan.config.metrics) {
      const std::optional<RunMetric> values = run_metric(plan, run, metric.path);
      if (!values) continue;
      const std::string& label = metric.label.empty() ? metric.path : metric.label;
      add_values(table, table.rows.size() - 1, label, run.seed, *values);
    }
  }
  return table;
}

std::string to_terminal(const SweepTable& table, const std::string& reference) {
  return build_table(table, reference).to_terminal() + legend(table) + "\n";
}

std::string to_markdown(const SweepTable& table, const std::string& reference) {
  return build_table(table, reference).to_markdown() + "\n" + legend(table) + "\n";
}

std::string to_latex(const SweepTable& table, const std::string& reference) {
  std::string text = "% needs \\usepackage{booktabs}\n% " + legend(table) + "\n\\begin{tabular}{l";
  text += std::string(table.columns.size(), 'r') + "}\n\\toprule\n";
  for (size_t i = 0; i < table.columns.size(); i += columns_of_metric(table, i)) {
    text += fmt::format(" & \\multicolumn{{{}}}{{c}}{{{}}}", columns_of_metric(table, i),
                        latex_escaped(table.columns[i].metric));
  }
  text += " \\\\\n";
  for (const SweepColumn& column : table.columns) {
    text += " & " + (column.budget == "run" ? "" : latex_escaped(column.budget));
  }
  text += " \\\\\n\\midrule\n";
  for (const std::vector<std::string>& line : text_rows(table, reference, "$\\pm$")) {
    text += latex_escaped(line.front());
    for (size_t i = 1; i < line.size(); ++i) text += " & " + line[i];
    text += " \\\\\n";
  }
  return text + "\\bottomrule\n\\end{tabular}\n";
}

std::string to_csv(const SweepTable& table) {
  std::string text = "row";
  if (!table.rows.empty()) {
    for (const AxisValue& value : table.rows.front().axis_values) text += "," + csv_quoted(value.axis);
  }
  text += ",metric,budget,seed,value\n";
  for (const SweepTableRow& row : table.rows) {
    std::string prefix = csv_quoted(row.name);
    for (const AxisValue& value : row.axis_values) prefix += "," + csv_quoted(value.label);
    for (size_t i = 0; i < table.columns.size(); ++i) {
      const SweepColumn& column = table.columns[i];
      for (const auto& [seed, value] : row.cells[i]) {
        text += fmt::format("{},{},{},{},{}\n", prefix, csv_quoted(column.metric), csv_quoted(column.budget),
                            seed, value);
      }
    }
  }
  return text;
}

}  // namespace smoe
