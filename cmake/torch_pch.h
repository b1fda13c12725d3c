// The headers that every file working with tensors needs, parsed once.
// Narrow on purpose: torch/torch.h (modules, optimisers, data loaders) doubles the time and is not used.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
