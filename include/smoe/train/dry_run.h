// What a run would do, found out without training: the report of `smoe-train --dry-run`.
#pragma once

#include <string>

#include "smoe/train/train_config.h"

namespace smoe {

// Opens tokenizer and data, reads a batch, counts parameters, memory and tokens, and checks that the run
// folder can be written. Nothing is left behind. Throws what a run would throw for the same mistakes.
std::string describe_run(const TrainConfig& config);

}  // namespace smoe
