// Memory, disk space and time of a run, from its config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smoe/train/train_config.h"

namespace smoe {

// Bytes of one checkpoint: weights, moments and, in bf16, masters.
int64_t checkpoint_bytes(const TrainConfig& config);

// Checkpoints that the keep rules leave at the end of the run, and one that is being written.
int64_t most_checkpoints(const TrainConfig& config);

// Sequences of a step that fall to the process with most of them.
int64_t most_rows(const TrainConfig& config, int64_t world_size);

// Lines of the report, one a kind of memory, for the process that needs most.
std::string describe_memory(const TrainConfig& config, int64_t world_size);

// FLOPs a step and of the run, and how long it takes: at `tokens_per_s` tokens of all passes, or at best,
// by the rate of matrix products measured here for a moment. `world_size` processes share the work.
std::string describe_time(const TrainConfig& config, std::optional<double> tokens_per_s, int64_t world_size);

}  // namespace smoe
