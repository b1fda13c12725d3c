// The agreement on checkpoints over the message board of a job.
#pragma once

#include <memory>

#include "smoe/distributed/communicator.h"
#include "smoe/train/checkpoint_group.h"

namespace smoe {

// Null for a process on its own, which has nobody to agree with.
std::shared_ptr<CheckpointGroup> make_checkpoint_group(const Communicator& communicator);

}  // namespace smoe
