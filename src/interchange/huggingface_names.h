// Which tensor of a Hugging Face model is which of ours. Private to the interchange area.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smoe/interchange/huggingface_config.h"
#include "smoe/model/model_config.h"

namespace smoe {

// A tensor of ours with its shape, and its counterparts in order: one, or one for each expert, which together
// are ours stacked along the first dimension.
struct TensorNames {
  std::string ours;
  std::vector<int64_t> sizes;
  std::vector<std::string> theirs;
  bool is_stacked = false;
};

// Every parameter of the model, in the order of the model.
std::vector<TensorNames> huggingface_names(const ModelConfig& config, HuggingFaceFamily family);

}  // namespace smoe
