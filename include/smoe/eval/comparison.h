// Compares two evaluations row by row: both answered the same questions, so that most of the noise cancels.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "smoe/eval/metrics.h"

namespace smoe {

// A budget of each run, by name. Without names, budgets that are called alike are compared, and a run with a
// single budget is compared at that one with every budget of the other.
struct ComparisonOptions {
  std::optional<std::string> budget_a;
  std::optional<std::string> budget_b;
};

struct ComparedMetric {
  std::string task;
  std::string metric;
  std::string budget_a;
  std::string budget_b;
  bool is_share = true;
  int64_t num_rows = 0;  // that both runs scored
  Estimate a;
  Estimate b;
  Estimate difference;  // b - a, paired
};

struct Comparison {
  std::vector<ComparedMetric> metrics;
  std::vector<std::string> warnings;  // what differs between the runs, and tasks of one run only
};

// Reads two results files and the sample logs that they name. Rows are matched by their line of the data
// file. Throws DataError for a run without sample logs, and if the runs have no task or budget in common.
Comparison compare_evaluations(const std::filesystem::path& a, const std::filesystem::path& b,
                               const ComparisonOptions& options);

std::string to_terminal_table(const Comparison& comparison);

}  // namespace smoe
