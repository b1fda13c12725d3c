#include "huggingface_names.h"

#include <array>
#include <utility>

#include "smoe/core/error.h"
#include "smoe/model/model.h"

namespace smoe {
namespace {

using Renaming = std::pair<std::string_view, std::string_view>;

constexpr std::array kTopLevel = {Renaming{"token_embedding.weight", "model.embed_tokens.weight"},
                                  Renaming{"final_norm.weight", "model.norm.weight"},
                                  Renaming{"output.weight", "lm_head.weight"}};

// Inside a layer, by the beginning of the name.
constexpr std::array kInLayer = {Renaming{"attention_norm.", "input_layernorm."},
                                 Renaming{"ffn_norm.", "post_attention_layernorm."},
                                 Renaming{"attention.", "self_attn."}, Renaming{"feed_forward.", "mlp."}};

constexpr std::array kMixtralProjections = {Renaming{"gate_proj", "w1"}, Renaming{"up_proj", "w3"},
                                            Renaming{"down_proj", "w2"}};

std::string expert_name(std::string_view projection, int64_t expert, HuggingFaceFamily family) {
  if (family != HuggingFaceFamily::kMixtral) return fmt::format("mlp.experts.{}.{}", expert, projection);
  for (const auto& [ours, theirs] : kMixtralProjections) {
    if (projection.starts_with(ours)) {
      return fmt::format("block_sparse_moe.experts.{}.{}{}", expert, theirs, projection.substr(ours.size()));
    }
  }
  SMOE_ASSERT(false);
  return {};
}

// `rest` is the name without "layers.<i>.".
void add_layer_names(std::string_view rest, const std::string& layer, HuggingFaceFamily family,
                     TensorNames& names) {
  constexpr std::string_view kExperts = "routed_experts.";
  if (rest.starts_with(kExperts)) {
    names.is_stacked = true;
    for (int64_t expert = 0; expert < names.sizes.front(); ++expert) {
      names.theirs.push_back(layer + expert_name(rest.substr(kExperts.size()), expert, family));
    }
    return;
  }
  if (rest == "router.weight") {
    names.theirs = {
        layer + (family == HuggingFaceFamily::kMixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight")};
    return;
  }
  for (const auto& [ours, theirs] : kInLayer) {
    if (rest.starts_with(ours)) {
      names.theirs = {layer + std::string(theirs) + std::string(rest.substr(ours.size()))};
      return;
    }
  }
  SMOE_ASSERT(false);
}

}  // namespace

std::vector<TensorNames> huggingface_names(const ModelConfig& config, HuggingFaceFamily family) {
  constexpr std::string_view kLayers = "layers.";
  std::vector<TensorNames> list;
  // On the meta device a model has names and shapes, and no memory.
  const Model model(config, at::Device(at::kMeta));
  for (const NamedParameter& parameter : model.parameters()) {
    TensorNames names{parameter.name, parameter.tensor.sizes().vec(), {}, false};
    const std::string_view name = parameter.name;
    if (name.starts_with(kLayers)) {
      const size_t dot = name.find('.', kLayers.size());
      add_layer_names(name.substr(dot + 1), "model." + std::string(name.substr(0, dot + 1)), family, names);
    }
    for (const auto& [ours, theirs] : kTopLevel) {
      if (name == ours) names.theirs = {std::string(theirs)};
    }
    SMOE_ASSERT(!names.theirs.empty());
    list.push_back(std::move(names));
  }
  return list;
}

}  // namespace smoe
