// How the processes of one start of a job find each other in a store that may hold what earlier starts left:
// a launcher keeps its store over restarts, and the nodes of a job do not count restarts alike.
#pragma once

#include <chrono>

#include "process_groups.h"

namespace smoe {

// Waits for all processes of the job. Returns `store` under a prefix that this start alone uses. Throws
// Error, naming those that are missing, after `timeout`.
StorePointer call_the_roll(const StorePointer& store, const LaunchInfo& launch,
                           std::chrono::milliseconds timeout);

}  // namespace smoe
