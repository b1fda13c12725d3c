// The table of a sweep: rows x (metric, budget), each cell the mean over the seeds with its spread.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "smoe/sweep/sweep_results.h"

namespace smoe {

struct SweepColumn {
  std::string metric;  // label
  std::string budget;
  MetricUnit unit = MetricUnit::kPlain;
};

// The values of a row in a column, by seed.
using SweepCell = std::map<int64_t, double>;

struct SweepTableRow {
  std::string name;
  std::vector<AxisValue> axis_values;
  std::vector<SweepCell> cells;  // as many as columns; empty where there is nothing yet
};

struct SweepTable {
  std::vector<SweepColumn> columns;  // metrics in the order of the config, budgets in that of appearance
  std::vector<SweepTableRow> rows;   // as planned
  int64_t num_seeds = 0;
};

// Mean and standard deviation (n - 1; 0 for a single value).
struct MeanAndSpread {
  double mean = 0.0;
  double spread = 0.0;
};
MeanAndSpread mean_and_spread(const SweepCell& cell);

// The mean of `cell - reference` over the seeds that both have and its standard error; nullopt without a
// common seed. With a single one the error is unknown and absent.
struct PairedDifference {
  double mean = 0.0;
  std::optional<double> standard_error;
};
std::optional<PairedDifference> paired_difference(const SweepCell& cell, const SweepCell& reference);

// Throws what run_metric throws.
SweepTable collect_table(const SweepPlan& plan);

// `reference` names the row that others are compared with, empty for none: a line under each row then gives
// the paired differences. Throws ConfigError for a row that is not there.
std::string to_terminal(const SweepTable& table, const std::string& reference);
std::string to_markdown(const SweepTable& table, const std::string& reference);
std::string to_latex(const SweepTable& table, const std::string& reference);
// One line a row, metric and budget: all values, for other programs.
std::string to_csv(const SweepTable& table);

// An .svg or .png with a panel a metric: against the axis if the sweep has one with numbers, else a group of
// points a row. Throws what write_gnuplot throws.
void plot_table(const SweepTable& table, const std::filesystem::path& out);

}  // namespace smoe
