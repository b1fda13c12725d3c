// What all conversions share: tensors that are converted when they are written, and a checkpoint folder
// around them. Private to the interchange area.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "smoe/interchange/huggingface.h"
#include "smoe/model/model_config.h"
#include "smoe/model/safetensors.h"

namespace smoe {

// `make` gives a floating-point tensor of any type; it is converted to `dtype`.
DeferredTensor converted_tensor(std::string name, std::vector<int64_t> sizes, at::ScalarType dtype,
                                std::function<at::Tensor()> make);

// The config.yaml of a checkpoint that no run of ours has trained.
std::string converted_config(const ModelConfig& config, std::optional<int64_t> sequence_length);

// Counts what was written and where.
InterchangeSummary summarize(const std::filesystem::path& folder, const std::vector<DeferredTensor>& tensors);

}  // namespace smoe
