// The models of Hugging Face's transformers that compute exactly what ours do, and their config.json.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "smoe/model/model_config.h"

namespace smoe {

enum class HuggingFaceFamily {
  kLlama,     // dense
  kQwen3,     // dense with QK-norm
  kMixtral,   // vanilla_moe: every layer a MoE layer, normalised weights, no shared experts
  kQwen3Moe,  // vanilla_moe with QK-norm: dense layers first, no shared experts
};
template <>
struct EnumNames<HuggingFaceFamily> {  // as `model_type` in config.json
  static constexpr std::array values = {enum_name(HuggingFaceFamily::kLlama, "llama"),
                                        enum_name(HuggingFaceFamily::kQwen3, "qwen3"),
                                        enum_name(HuggingFaceFamily::kMixtral, "mixtral"),
                                        enum_name(HuggingFaceFamily::kQwen3Moe, "qwen3_moe")};
};

// "LlamaForCausalLM" and so on.
std::string huggingface_class(HuggingFaceFamily family);

// The family whose computation is that of `config`. Throws CheckpointError with `label` and, for every
// family, the reason why it does not fit.
HuggingFaceFamily matching_family(const ModelConfig& config, const std::string& label);

// What config.json says besides the shapes.
struct HuggingFaceDetails {
  int64_t max_positions = 0;
  int64_t experts_per_token = 0;  // of a vanilla_moe
  std::string dtype;              // "float32", "bfloat16"
  nlohmann::json bos_token_id;    // a number or null
  nlohmann::json eos_token_id;    // a number, a list or null
};
nlohmann::ordered_json to_huggingface_config(const ModelConfig& config, HuggingFaceFamily family,
                                             const HuggingFaceDetails& details);

struct HuggingFaceModel {
  HuggingFaceFamily family = HuggingFaceFamily::kLlama;
  ModelConfig config;
  int64_t max_positions = 0;
};
// Reads config.json of one of the families; model_type `mistral` without a sliding window is a Llama.
// Whatever our models do not compute is an error, unknown keys included, unless `ignored_keys` names them.
// Throws CheckpointError listing all problems: label, key, what was found, what is allowed.
HuggingFaceModel from_huggingface_config(const nlohmann::json& config, const std::string& label,
                                         const std::vector<std::string>& ignored_keys = {});

}  // namespace smoe
