// The type that a run's `dtype` means, and what to say of it on this machine.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "smoe/train/train_config.h"

namespace smoe {

at::ScalarType scalar_type(TrainDtype dtype);

// Why training in `dtype` will be slow on `device`, with the remedy; empty if it will not be.
std::string why_slow(TrainDtype dtype, at::Device device);

// Whether this processor multiplies bfloat16 matrices by instructions of its own (AMX, AVX512-BF16, Arm's
// BF16). `cpu_info` is the text of /proc/cpuinfo.
bool multiplies_bfloat16(const std::string& cpu_info);

}  // namespace smoe
