// What a run would do, found out without training: the report of `smoe-train --dry-run`.
#pragma once

#include <optional>
#include <string>

#include "smoe/train/train_config.h"

namespace smoe {

struct DryRunOptions {
  bool resume = false;      // as in TrainerOptions
  std::string resume_from;  // as in TrainerOptions
  // Known speed, as the training lines print it (tokens of all passes). Without it the report measures matrix
  // products for a moment and says what that allows at best.
  std::optional<double> tokens_per_s;
};

// Does everything that a run does before its first step, with a model that has shapes but no memory: opens
// tokenizer, training and validation data, reads the first and the last batch, checks the checkpoint that
// weights or the run would come from, device, launcher, run folder (rights, other jobs, earlier runs) and
// disk space. Reports parameters, memory, FLOPs, tokens and time. Nothing is left behind. Throws what a run
// would throw for the same mistakes.
std::string describe_run(const TrainConfig& config, const DryRunOptions& options = {});

}  // namespace smoe
