// What is known of one run of a sweep: its state file, and how far training has got.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "smoe/sweep/sweep_plan.h"

namespace smoe {

// FOLDER/states/RUN.json. Written by the runner only, after each part of a run.
struct RunState {
  std::string config_hash;                         // of the config that was trained
  bool trained = false;                            // all steps are done
  std::map<std::string, std::string> evaluations;  // name -> hash of the finished evaluation's settings
  double core_seconds = 0.0;                       // CPU time of training, over all attempts
  double wall_seconds = 0.0;                       // of training, over all attempts
  int64_t failures = 0;                            // attempts since the last success
};

// nullopt if the run was never started. Throws DataError for a file that is no state.
std::optional<RunState> read_run_state(const std::filesystem::path& path);
void write_run_state(const std::filesystem::path& path, const RunState& state);

// Changes when the evaluation would give other results.
std::string evaluation_hash(const SweepEvaluation& evaluation);

// The keys of the config that the run was trained with that differ from the planned one and can change its
// results. Threads, memory and logging are not among them, nor keys of a newer version with their defaults.
// The hash of the config, where its file is gone.
std::vector<ConfigDifference> training_differences(const SweepPlan& plan, const PlannedRun& run,
                                                   const RunState& state);

enum class RunStage { kWaiting, kInterrupted, kTraining, kFailed, kTrained, kFinished, kOtherConfig };
const char* to_string(RunStage stage);

struct RunProgress {
  RunStage stage = RunStage::kWaiting;
  int64_t step = 0;  // of the last metrics line
  int64_t total_steps = 0;
  double seconds = 0.0;                   // of training so far
  std::optional<double> remaining_s;      // estimate of the training that is left
  std::optional<double> validation_loss;  // newest, mean over sources and budgets
};

// Reads the state and the metrics of a run. A run in which a job holds the lock counts as training.
RunProgress run_progress(const SweepPlan& plan, const PlannedRun& run);

// A line a run and the estimated time to the end, from the speed so far of this run or, for those that have
// not started, the mean time of the others. `jobs`: runs at a time.
std::string describe_progress(const SweepPlan& plan, int64_t jobs);

}  // namespace smoe
