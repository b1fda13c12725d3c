// Copies from host memory to a GPU that do not make the host wait.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace smoe {

// `host` on `device`. To a GPU through page-locked memory and without waiting: later work on the current
// stream sees the copy, and the host may overwrite `host` at once. On the CPU, or where `host` is on the
// device already, the tensor itself.
at::Tensor copy_to_device(const at::Tensor& host, at::Device device);

// The same for a list of numbers, as int64.
at::Tensor copy_to_device(const std::vector<int64_t>& host, at::Device device);

}  // namespace smoe
