// The figures of finished runs: what a table of a sweep is made of.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "smoe/sweep/sweep_plan.h"

namespace smoe {

// What kind of number a metric is, which decides how it is written.
enum class MetricUnit { kNats, kShare, kPlain, kCount };

// A metric of one run: a value a table column. The columns are budgets, renamed as the row says, and "run"
// for what belongs to the run as a whole.
struct RunMetric {
  MetricUnit unit = MetricUnit::kPlain;
  std::vector<std::pair<std::string, double>> values;
};

// nullopt if the run has not got that far. Metrics:
//   validation/SOURCE/loss, validation/SOURCE/bits_per_byte   at the last step; SOURCE `mean`: over the
//   sources router/FIELD                                              router panel of the last validation
//   cost/active, tokens, flops_6nt, flops_exact               a budget, on paper
//   cost/core_seconds, wall_seconds, total_flops_6nt, total_flops_exact   of the run
//   EVALUATION/TASK[/METRIC]                                  TASK a task or a group; METRIC default: the
//   primary
// Throws DataError if the run has the file but no such source, field, task or metric (lists what there is).
std::optional<RunMetric> run_metric(const SweepPlan& plan, const PlannedRun& run, const std::string& path);

}  // namespace smoe
