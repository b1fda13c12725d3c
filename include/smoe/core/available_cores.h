// How many threads can run at the same time.
#pragma once

#include <cstdint>

namespace smoe {

// Cores on which the scheduler may run this process (taskset, cpusets and batch systems leave it fewer than
// the machine has); at least 1.
int64_t available_cores();

}  // namespace smoe
