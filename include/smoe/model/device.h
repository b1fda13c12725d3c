// Where tensors live and how many threads work on them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

namespace smoe {

// The device that `name` means: cpu, cuda or cuda:N. Throws ConfigError for another word, and for a GPU that
// is not there.
at::Device resolve_device(const std::string& name);

// Sets the number of threads of tensor operations; 0 means all cores this process may use. Results are
// reproducible for one number of threads.
void set_num_threads(int64_t num_threads);

// The most memory that tensors on the device, or on the CPU the whole process (its resident set), have taken
// so far.
int64_t peak_memory_bytes(at::Device device);

}  // namespace smoe
