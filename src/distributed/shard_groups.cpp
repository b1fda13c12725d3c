#include "smoe/distributed/shard_groups.h"

#include "smoe/core/error.h"

namespace smoe {

int64_t shard_group_processes(const DistributedConfig& config, int64_t world_size) {
  if (world_size == 1 || config.zero_stage == 0) return 1;
  const int64_t size = config.shard_group_size == 0 ? world_size : config.shard_group_size;
  SMOE_CHECK(
      ConfigError, size <= world_size && world_size % size == 0,
      "distributed.shard_group_size is {}, which does not divide the {} processes of the job; choose a "
      "divisor, or 0 for one group of all",
      size, world_size);
  return size;
}

}  // namespace smoe
