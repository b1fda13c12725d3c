// Expands a sweep into runs, each with its complete config, before anything is started.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "smoe/sweep/sweep_config.h"
#include "smoe/train/config_difference.h"
#include "smoe/train/train_config.h"

namespace smoe {

// One value of every axis.
struct AxisValue {
  std::string axis;   // name of the axis
  std::string label;  // of the value
};

struct PlannedRun {
  std::string name;      // "ROW,AXIS=LABEL,seed=1": also the name of its folder
  std::string row_name;  // the name without the seed: the row of the table
  size_t row = 0;        // index in SweepConfig::rows; 0 if there are none
  std::vector<AxisValue> axis_values;
  int64_t seed = 1;
  TrainConfig config;
  std::vector<ConfigDifference> differences;  // from the base config of its row
};

struct SweepPlan {
  SweepConfig config;
  std::vector<PlannedRun> runs;  // seeds innermost

  std::filesystem::path folder() const { return config.folder; }
  std::filesystem::path config_file(const PlannedRun& run) const;
  std::filesystem::path log_file(const PlannedRun& run) const;
  std::filesystem::path state_file(const PlannedRun& run) const;
  std::filesystem::path results_file(const PlannedRun& run, const SweepEvaluation& evaluation) const;
};

// Reads the sweep and the config of every run. `overrides` are of the sweep's config ("seeds=[1]"). Throws
// ConfigError with the problems of all runs: unknown keys, values out of range, runs with the same name.
SweepPlan plan_sweep(const std::filesystem::path& file, const std::vector<std::string>& overrides);

// Every run with its differences from the base, for people.
std::string describe_plan(const SweepPlan& plan);

}  // namespace smoe
