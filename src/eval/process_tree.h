// The processes below a process, from /proc. Private to the code sandbox.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace smoe {

// Direct children. Empty where the process is gone or the kernel lacks CONFIG_PROC_CHILDREN.
std::vector<pid_t> children_of(pid_t process);
// Children, their children and so on, parents first.
std::vector<pid_t> descendants_of(pid_t process);
// Resident memory of a process, 0 if it is gone. Pages that processes share count once for each.
int64_t resident_bytes(pid_t process);
// Threads of all processes whose real user is `user`: what RLIMIT_NPROC counts.
int64_t count_threads_of_user(uid_t user);

}  // namespace smoe
