#include "smoe/sweep/sweep_plan.h"

#include <algorithm>
#include <map>

namespace smoe {
namespace {

namespace fs = std::filesystem;

std::string axis_name(const SweepAxis& axis) {
  if (!axis.name.empty()) return axis.name;
  const size_t dot = axis.key.rfind('.');
  return dot == std::string::npos ? axis.key : axis.key.substr(dot + 1);
}

// Index of the value of each axis: all combinations, the last axis fastest.
std::vector<std::vector<size_t>> combinations(const std::vector<SweepAxis>& axes) {
  std::vector<std::vector<size_t>> all = {{}};
  for (const SweepAxis& axis : axes) {
    std::vector<std::vector<size_t>> longer;
    for (const std::vector<size_t>& prefix : all) {
      for (size_t value = 0; value < axis.values.size(); ++value) {
        longer.push_back(prefix);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// Plans the runs of one row, with the dump of the row's base to compare with.
class RowPlanner {
 public:
  RowPlanner(const SweepConfig& sweep, const fs::path& sweep_folder, size_t row_index)
      : sweep_(sweep), row_index_(row_index) {
    if (!sweep.rows.empty()) row_ = sweep.rows[row_index];
    base_ = sweep_folder / (row_.base.empty() ? sweep.base : row_.base);
  }

  // The row with a value of every axis: "ROW,AXIS=LABEL".
  std::string describe(const std::vector<size_t>& value_of_axis) const {
    std::string name = row_.name;
    for (size_t i = 0; i < value_of_axis.size(); ++i) {
      const AxisValue value = axis_value(i, value_of_axis[i]);
      name += fmt::format("{}{}={}", name.empty() ? "" : ",", value.axis, value.label);
    }
    return name.empty() ? base_.stem().string() : name;
  }

  // Throws ConfigError.
  PlannedRun plan(const std::vector<size_t>& value_of_axis, int64_t seed) {
    PlannedRun run;
    run.row = row_index_;
    run.seed = seed;
    run.row_name = describe(value_of_axis);
    std::vector<std::string> overrides = sweep_.set;
    overrides.insert(overrides.end(), row_.set.begin(), row_.set.end());
    for (size_t i = 0; i < value_of_axis.size(); ++i) {
      overrides.push_back(sweep_.axes[i].key + "=" + sweep_.axes[i].values[value_of_axis[i]]);
      run.axis_values.push_back(axis_value(i, value_of_axis[i]));
    }
    run.name = fmt::format("{},seed={}", run.row_name, seed);
    overrides.push_back(fmt::format("seed={}", seed));
    overrides.push_back(fmt::format("data.seed={}", seed));
    overrides.push_back("run_folder=" + (fs::path(sweep_.folder) / "runs" / run.name).string());
    run.config = read_config<TrainConfig>({base_, overrides});
    if (base_dump_.empty()) base_dump_ = dump_config(read_config<TrainConfig>({base_, {}}));
    run.differences = config_differences(base_dump_, dump_config(run.config));
    return run;
  }

 private:
  AxisValue axis_value(size_t index, size_t value) const {
    const SweepAxis& axis = sweep_.axes[index];
    return {axis_name(axis), axis.labels.empty() ? axis.values[value] : axis.labels[value]};
  }

  const SweepConfig& sweep_;
  size_t row_index_;
  SweepRow row_;
  fs::path base_;
  std::string base_dump_;
};

}  // namespace

fs::path SweepPlan::config_file(const PlannedRun& run) const {
  return folder() / "configs" / (run.name + ".yaml");
}
fs::path SweepPlan::log_file(const PlannedRun& run) const { return folder() / "logs" / (run.name + ".log"); }
fs::path SweepPlan::state_file(const PlannedRun& run) const {
  return folder() / "states" / (run.name + ".json");
}
fs::path SweepPlan::results_file(const PlannedRun& run, const SweepEvaluation& evaluation) const {
  return fs::path(run.config.run_folder) / "evaluations" / (evaluation.name + ".json");
}

SweepPlan plan_sweep(const fs::path& file, const std::vector<std::string>& overrides) {
  SweepPlan plan;
  plan.config = read_config<SweepConfig>({file, overrides});
  const size_t num_rows = std::max<size_t>(plan.config.rows.size(), 1);
  std::string problems;
  std::map<std::string, int> uses;
  for (size_t row = 0; row < num_rows; ++row) {
    RowPlanner planner(plan.config, file.parent_path(), row);
    for (const std::vector<size_t>& values : combinations(plan.config.axes)) {
      for (const int64_t seed : plan.config.seeds) {
        try {
          plan.runs.push_back(planner.plan(values, seed));
          if (++uses[plan.runs.back().name] == 2) {
            problems += fmt::format("two runs are called {}\n", plan.runs.back().name);
          }
        } catch (const ConfigError& error) {
          // The seeds of a row share their mistakes; one report is enough.
          problems += fmt::format("{}: {}\n", planner.describe(values), error.what());
          break;
        }
      }
    }
  }
  if (!problems.empty()) problems.pop_back();
  SMOE_CHECK(ConfigError, problems.empty(),
             "{}: nothing was started, because some runs have no valid config:\n{}", file.string(), problems);
  return plan;
}

std::string describe_plan(const SweepPlan& plan) {
  std::string text;
  std::string row_name;
  for (const PlannedRun& run : plan.runs) {
    if (run.row_name == row_name) continue;
    row_name = run.row_name;
    std::vector<ConfigDifference> differences;
    // What differs between the seeds of a row is no part of what the row tests.
    for (const ConfigDifference& difference : run.differences) {
      if (difference.key != "run_folder" && difference.key != "seed" && difference.key != "data.seed")
        differences.push_back(difference);
    }
    text += fmt::format("{} ({} seeds)\n{}", row_name, plan.config.seeds.size(),
                        differences.empty() ? "  as the base\n" : describe_differences(differences));
    if (!text.ends_with('\n')) text += '\n';
  }
  return text + fmt::format("{} runs in {}\n", plan.runs.size(), plan.folder().string());
}

}  // namespace smoe
