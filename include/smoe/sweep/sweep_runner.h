// Runs what a sweep has not finished yet: trains with smoe-train, evaluates with smoe-eval.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "smoe/sweep/sweep_plan.h"

namespace smoe {

struct SweepRunOptions {
  std::filesystem::path tools;    // folder that holds smoe-train and smoe-eval
  int64_t jobs = 1;               // runs at a time
  std::vector<std::string> only;  // names of runs, or their numbers in the plan from 0; empty: all
};

struct SweepOutcome {
  int64_t finished = 0;  // in all, earlier calls included
  int64_t failed = 0;
  int signal = 0;  // that ended the sweep early
};

// Runs come in the order of the plan. A finished run is skipped; one that was cut short goes on from its
// newest checkpoint; one that fails is noted, and the others go on. SIGINT and SIGTERM are passed on to the
// programs, which save and stop, and no further run is started. The output of the programs goes to the log
// files.
// Throws ConfigError before anything is started: an unknown name in `only`, a missing program, or a run that
// was trained with another config (lists the keys that differ).
SweepOutcome run_sweep(const SweepPlan& plan, const SweepRunOptions& options);

// A job script for SLURM with one array task a run. `overrides` are those that the plan was made with. Makes
// the folder of the logs, which has to be there when the job starts.
std::string slurm_script(const SweepPlan& plan, const std::filesystem::path& sweep_file,
                         const std::vector<std::string>& overrides, const std::filesystem::path& sweep_tool);

}  // namespace smoe
