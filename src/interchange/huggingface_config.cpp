#include "smoe/interchange/huggingface_config.h"

#include <fmt/ranges.h>

#include "huggingface_keys.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

using nlohmann::json;

bool is_moe(HuggingFaceFamily family) {
  return family == HuggingFaceFamily::kMixtral || family == HuggingFaceFamily::kQwen3Moe;
}

bool has_qk_norm(HuggingFaceFamily family) {
  return family == HuggingFaceFamily::kQwen3 || family == HuggingFaceFamily::kQwen3Moe;
}

// Why the family does not compute what the model does; empty if it does.
std::vector<std::string> misfits(HuggingFaceFamily family, const ModelConfig& config) {
  std::vector<std::string> reasons;
  const auto need = [&](bool fits, std::string reason) {
    if (!fits) reasons.push_back(std::move(reason));
  };
  need((config.architecture == Architecture::kVanillaMoe) == is_moe(family),
       is_moe(family) ? "it is a MoE" : "it is dense");
  need(config.qk_norm == has_qk_norm(family), has_qk_norm(family)
                                                  ? "it has QK-norm (model.qk_norm is false)"
                                                  : "it has no QK-norm (model.qk_norm is true)");
  if (family == HuggingFaceFamily::kLlama) {
    need(config.dim % config.num_heads == 0,
         fmt::format("it needs model.dim ({}) to be a multiple of model.num_heads ({})", config.dim,
                     config.num_heads));
  }
  if (!is_moe(family) || config.architecture != Architecture::kVanillaMoe) return reasons;
  need(config.num_shared_experts == 0,
       fmt::format("it has no shared experts (model.num_shared_experts is {})", config.num_shared_experts));
  if (family == HuggingFaceFamily::kMixtral) {
    need(config.num_dense_layers == 0,
         fmt::format("it has no dense layers (model.num_dense_layers is {})", config.num_dense_layers));
    need(config.token_router.normalize_weights,
         "it normalises the weights of the chosen experts (model.token_router.normalize_weights is false)");
  }
  return reasons;
}

// Where the angles of the rotary embedding are set: `rope_parameters` since transformers 5, before that
// `rope_theta` and `rope_scaling`.
double read_rope_theta(HuggingFaceKeys& keys, HuggingFaceFamily family, std::vector<std::string>& problems) {
  const double usual = family == HuggingFaceFamily::kMixtral ? 1e6 : 1e4;
  double theta = keys.number("rope_theta", usual);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const json* value = keys.find(name);
    if (value == nullptr) continue;
    if (!value->is_object()) {
      keys.add_problem(name, fmt::format("is {}; an object or null is needed", value->dump()));
      continue;
    }
    HuggingFaceKeys nested(*value, problems, fmt::format("{}.", name));
    for (const char* type : {"rope_type", "type"}) {
      nested.require(type, {"default"}, "positions are not scaled in our models");
    }
    nested.require("partial_rotary_factor", {1.0, 1}, "all channels of a head are rotated in our models");
    theta = nested.number("rope_theta", theta);
    nested.refuse_unknown({});
  }
  return theta;
}

void read_attention_window(HuggingFaceKeys& keys, const json& config, int64_t max_positions) {
  keys.require("use_sliding_window", {false}, "attention is causal over the whole row in our models");
  keys.ignore({"max_window_layers"});
  const json* window = keys.find("sliding_window");
  // Configs of Qwen give a window that `use_sliding_window: false` switches off.
  const bool off = config.contains("use_sliding_window") && config["use_sliding_window"] == false;
  const bool never_reached = window != nullptr && window->is_number_integer() && *window >= max_positions;
  if (window != nullptr && !off && !never_reached) {
    keys.add_problem("sliding_window", fmt::format("is {}; allowed is null: attention is causal over the "
                                                   "whole row in our models",
                                                   window->dump()));
  }
  const json* types = keys.find("layer_types");
  for (const json& type : types == nullptr ? json::array() : *types) {
    if (type == "full_attention") continue;
    keys.add_problem("layer_types", fmt::format("holds {}; allowed is \"full_attention\"", type.dump()));
    break;
  }
}

void read_experts(HuggingFaceKeys& keys, HuggingFaceFamily family, ModelConfig& config) {
  const bool mixtral = family == HuggingFaceFamily::kMixtral;
  config.architecture = Architecture::kVanillaMoe;
  const json* num_experts = keys.find("num_experts");
  config.num_experts = keys.integer(mixtral || num_experts == nullptr ? "num_local_experts" : "num_experts");
  keys.ignore({"num_experts", "num_local_experts", "router_jitter_noise", "output_router_logits"});
  config.expert_dim = keys.integer(mixtral ? "intermediate_size" : "moe_intermediate_size");
  config.num_shared_experts = 0;
  const int64_t experts_per_token = keys.integer("num_experts_per_tok");
  config.budgets = {{std::to_string(experts_per_token), experts_per_token}};
  config.token_router.normalize_weights = mixtral || keys.flag("norm_topk_prob", false);
  if (const json* weight = keys.find("router_aux_loss_coef"); weight != nullptr && *weight != 0.0) {
    config.token_router.load_balance_weight = keys.number("router_aux_loss_coef");
  }
  if (experts_per_token > config.num_experts) {
    keys.add_problem("num_experts_per_tok",
                     fmt::format("is {}, more than the {} experts", experts_per_token, config.num_experts));
  }
  int64_t num_dense = 0;
  if (!mixtral) {
    keys.require("decoder_sparse_step", {1}, "in our models all layers after the dense ones are MoE layers");
    const json* dense_layers = keys.find("mlp_only_layers");
    for (const json& layer : dense_layers == nullptr ? json::array() : *dense_layers) {
      if (layer != num_dense) {
        keys.add_problem("mlp_only_layers",
                         fmt::format("is {}; allowed are the first layers, [0, 1, ...]: in our models dense "
                                     "layers come first",
                                     dense_layers->dump()));
        break;
      }
      ++num_dense;
    }
  }
  config.num_moe_layers = config.num_dense_layers - num_dense;
  config.num_dense_layers = num_dense;
  if (config.num_moe_layers < 1) keys.add_problem("num_hidden_layers", "leaves no MoE layer");
}

void read_shapes(HuggingFaceKeys& keys, HuggingFaceFamily family, ModelConfig& config) {
  config.architecture = Architecture::kDense;
  config.size_embedding = SizeEmbedding::kNone;
  config.vocab_size = keys.integer("vocab_size");
  config.dim = keys.integer("hidden_size");
  config.num_heads = keys.integer("num_attention_heads");
  config.num_kv_heads = family == HuggingFaceFamily::kLlama
                            ? keys.integer("num_key_value_heads", config.num_heads)
                            : keys.integer("num_key_value_heads");
  // Qwen3 has a fixed default, which its published configs do not rely on.
  const bool has_default = family != HuggingFaceFamily::kQwen3 && config.dim % config.num_heads == 0;
  config.head_dim =
      keys.integer("head_dim", has_default ? std::optional(config.dim / config.num_heads) : std::nullopt);
  config.num_dense_layers = keys.integer("num_hidden_layers");
  config.num_moe_layers = 0;
  config.dense_ffn_dim = keys.integer("intermediate_size");
  config.tied_embeddings = keys.flag("tie_word_embeddings", false);
  config.qk_norm = has_qk_norm(family);
  config.norm_eps = keys.number("rms_norm_eps");
}

void check_computation(HuggingFaceKeys& keys) {
  keys.require("hidden_act", {"silu", "swish"}, "the feed-forward layers of our models are SwiGLU");
  keys.require("attention_bias", {false}, "linear maps of our models have no biases");
  keys.require("mlp_bias", {false}, "linear maps of our models have no biases");
  keys.require("partial_rotary_factor", {1.0, 1}, "all channels of a head are rotated in our models");
  keys.require("rope_interleaved", {false}, "channel i of a head turns with channel i + head_dim / 2");
  keys.require("quantization_config", {}, "weights must be float32, float16 or bfloat16; dequantise them");
  keys.ignore({"architectures",
               "model_type",
               "torch_dtype",
               "dtype",
               "transformers_version",
               "use_cache",
               "initializer_range",
               "pretraining_tp",
               "attention_dropout",
               "bos_token_id",
               "eos_token_id",
               "pad_token_id",
               "_name_or_path",
               "return_dict",
               "output_hidden_states",
               "output_attentions",
               "is_decoder",
               "is_encoder_decoder",
               "tokenizer_class",
               "_attn_implementation_autoset",
               "chunk_size_feed_forward",
               "id2label",
               "label2id",
               "problem_type",
               "unsloth_version",
               "is_llama_config",
               "transformers.js_config"});
}

HuggingFaceFamily read_family(const json& config, const std::string& label) {
  const std::string type = config.is_object() ? config.value("model_type", json()).dump() : "nothing";
  const std::string name = type.size() > 2 ? type.substr(1, type.size() - 2) : "";
  const auto family = enum_from_name<HuggingFaceFamily>(name == "mistral" ? "llama" : name);
  SMOE_CHECK(CheckpointError, family.has_value(),
             "{}: model_type is {}; allowed are llama, mistral, qwen3 (dense) and mixtral, qwen3_moe "
             "(vanilla_moe): other models compute what ours do not",
             label, type);
  return *family;
}

}  // namespace

std::string huggingface_class(HuggingFaceFamily family) {
  switch (family) {
    case HuggingFaceFamily::kLlama:
      return "LlamaForCausalLM";
    case HuggingFaceFamily::kQwen3:
      return "Qwen3ForCausalLM";
    case HuggingFaceFamily::kMixtral:
      return "MixtralForCausalLM";
    case HuggingFaceFamily::kQwen3Moe:
      return "Qwen3MoeForCausalLM";
  }
  SMOE_ASSERT(false);
  return {};
}

HuggingFaceFamily matching_family(const ModelConfig& config, const std::string& label) {
  SMOE_CHECK(CheckpointError, config.architecture != Architecture::kSteppedMoe,
             "{}: no class of transformers routes segments, so a stepped_moe has no Hugging Face form. Other "
             "programs can read its safetensors as they are: docs/checkpoint_format.md and "
             "tools/reference_forward.py say how",
             label);
  std::string reasons;
  for (const auto& [family, name] : EnumNames<HuggingFaceFamily>::values) {
    const std::vector<std::string> misfit = misfits(family, config);
    if (misfit.empty()) return family;
    reasons += fmt::format("\n  {}: {}", name, fmt::join(misfit, "; "));
  }
  throw CheckpointError(fmt::format("{}: no class of transformers computes exactly what this {} does:{}",
                                    label, enum_to_name(config.architecture), reasons));
}

nlohmann::ordered_json to_huggingface_config(const ModelConfig& config, HuggingFaceFamily family,
                                             const HuggingFaceDetails& details) {
  nlohmann::ordered_json result = {
      {"architectures", {huggingface_class(family)}},
      {"model_type", enum_to_name(family)},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.dim},
      {"intermediate_size", family == HuggingFaceFamily::kMixtral ? config.expert_dim : config.dense_ffn_dim},
      {"num_hidden_layers", config.num_layers()},
      {"num_attention_heads", config.num_heads},
      {"num_key_value_heads", config.num_kv_heads},
      {"head_dim", config.head_dim},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"rms_norm_eps", config.norm_eps},
      // Both spellings: versions before 5 read the first, later ones the second.
      {"rope_theta", config.rope_theta},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", config.rope_theta}}},
      {"max_position_embeddings", details.max_positions},
      {"tie_word_embeddings", config.tied_embeddings},
      {"bos_token_id", details.bos_token_id},
      {"eos_token_id", details.eos_token_id},
      {"torch_dtype", details.dtype},
      {"use_cache", true}};
  if (family == HuggingFaceFamily::kLlama) result["mlp_bias"] = false;
  if (family == HuggingFaceFamily::kMixtral) result["sliding_window"] = nullptr;
  if (has_qk_norm(family)) result["use_sliding_window"] = false;
  if (!is_moe(family)) return result;
  result[family == HuggingFaceFamily::kMixtral ? "num_local_experts" : "num_experts"] = config.num_experts;
  result["num_experts_per_tok"] = details.experts_per_token;
  result["router_aux_loss_coef"] = config.token_router.load_balance_weight;
  if (family == HuggingFaceFamily::kQwen3Moe) {
    result["moe_intermediate_size"] = config.expert_dim;
    result["norm_topk_prob"] = config.token_router.normalize_weights;
    result["decoder_sparse_step"] = 1;
    result["mlp_only_layers"] = nlohmann::ordered_json::array();
    for (int64_t layer = 0; layer < config.num_dense_layers; ++layer) {
      result["mlp_only_layers"].push_back(layer);
    }
  }
  return result;
}

HuggingFaceModel from_huggingface_config(const json& config, const std::string& label,
                                         const std::vector<std::string>& ignored_keys) {
  HuggingFaceModel model;
  model.family = read_family(config, label);
  std::vector<std::string> problems;
  HuggingFaceKeys keys(config, problems);
  read_shapes(keys, model.family, model.config);
  if (is_moe(model.family)) read_experts(keys, model.family, model.config);
  model.max_positions = keys.integer("max_position_embeddings");
  model.config.rope_theta = read_rope_theta(keys, model.family, problems);
  read_attention_window(keys, config, model.max_positions);
  check_computation(keys);
  keys.refuse_unknown(ignored_keys);
  SMOE_CHECK(CheckpointError, problems.empty(), "{}: the model cannot be represented:\n  {}", label,
             fmt::join(problems, "\n  "));
  ConfigProblems rules;
  validate(model.config, rules);
  rules.throw_if_any(label);
  return model;
}

}  // namespace smoe
