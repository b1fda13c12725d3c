// How many processes share one set of optimizer states: the one reading of zero_stage and shard_group_size,
// for training, its memory on paper and the checks before a job. Not for forming the groups: data_parallel.h
// does.
#pragma once

#include <cstdint>

#include "smoe/distributed/distributed_config.h"

namespace smoe {

// Processes of a shard group in a job of `world_size`: 1 where nothing is shared out (zero_stage 0). Throws
// ConfigError if distributed.shard_group_size does not divide the job.
int64_t shard_group_processes(const DistributedConfig& config, int64_t world_size);

}  // namespace smoe
