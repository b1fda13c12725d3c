#include "stock_decoder.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <chrono>

#include "smoe/core/error.h"

namespace smoe {
namespace {

at::Tensor swiglu_of(const at::Tensor& x_1D, const at::Tensor& gate, const at::Tensor& up,
                     const at::Tensor& down) {
  return at::linear(at::silu(at::linear(x_1D, gate)) * at::linear(x_1D, up), down);
}

at::Tensor rotate(const at::Tensor& x_1HTK, const RotaryTable& table) {
  const std::vector<at::Tensor> halves = x_1HTK.chunk(2, -1);
  return at::cat(
      {halves[0] * table.cos - halves[1] * table.sin, halves[1] * table.cos + halves[0] * table.sin}, -1);
}

}  // namespace

std::string stock_decoding_name(StockDecoding decoding) {
  switch (decoding) {
    case StockDecoding::kGatheredByToken:
      return "stock gather";
    case StockDecoding::kGathered:
      return "stock gather once";
    case StockDecoding::kLooped:
      return "stock loop";
  }
  return "";
}

bool StockDecoder::supports(const ModelConfig& config) {
  const RoutingConfig& routing = config.routing;
  return config.architecture == Architecture::kSteppedMoe &&
         config.size_embedding != SizeEmbedding::kRouterOnly && routing.mask_source == MaskSource::kLearned &&
         routing.selector_position == SelectorPosition::kFirst &&
         routing.mask_head.kind == MaskHeadKind::kLinear && !routing.mask_head.normalize_layers &&
         routing.balance.kind != BalanceKind::kBias;
}

StockDecoder::StockDecoder(const Model& model, int64_t budget, int64_t segment_length, StockDecoding decoding)
    : model_(model), budget_(budget), segment_length_(segment_length), decoding_(decoding) {
  SMOE_ASSERT(supports(model.config()));
  for (const NamedParameter& parameter : model.parameters()) weights_[parameter.name] = parameter.tensor;
  keys_.resize(static_cast<size_t>(model.config().num_layers()));
  values_.resize(keys_.size());
}

at::Tensor StockDecoder::norm(const at::Tensor& x, const std::string& name) const {
  const at::Tensor& gain = weight(name + ".weight");
  return at::rms_norm(x, gain.sizes(), gain, model_.config().norm_eps);
}

at::Tensor StockDecoder::attention(const at::Tensor& x_1D, int64_t layer, const RotaryTable& table) {
  const ModelConfig& config = model_.config();
  const std::string prefix = fmt::format("layers.{}.attention", layer);
  const auto project = [&](const char* name, int64_t heads) {
    return at::linear(x_1D, weight(fmt::format("{}.{}.weight", prefix, name)))
        .view({1, heads, 1, config.head_dim});
  };
  at::Tensor q = project("q_proj", config.num_heads);
  at::Tensor k = project("k_proj", config.num_kv_heads);
  const at::Tensor v = project("v_proj", config.num_kv_heads);
  if (config.qk_norm) {
    q = norm(q, prefix + ".q_norm");
    k = norm(k, prefix + ".k_norm");
  }
  at::Tensor& keys = keys_[static_cast<size_t>(layer)];
  at::Tensor& values = values_[static_cast<size_t>(layer)];
  keys = keys.defined() ? at::cat({keys, rotate(k, table)}, 2) : rotate(k, table);
  values = values.defined() ? at::cat({values, v}, 2) : v;
  const int64_t group = config.num_heads / config.num_kv_heads;
  const auto repeated = [group](const at::Tensor& x) {
    return group > 1 ? x.repeat_interleave(group, 1) : x;
  };
  const at::Tensor mixed =
      at::scaled_dot_product_attention(rotate(q, table), repeated(keys), repeated(values));
  return at::linear(mixed.view({1, -1}), weight(prefix + ".o_proj.weight"));
}

at::Tensor StockDecoder::feed_forward(const at::Tensor& x_1D, const std::string& prefix) const {
  return swiglu_of(x_1D, weight(prefix + ".gate_proj.weight"), weight(prefix + ".up_proj.weight"),
                   weight(prefix + ".down_proj.weight"));
}

StockDecoder::ChosenExperts StockDecoder::experts_of(int64_t moe_layer) const {
  const at::Tensor expert_k = expert_Lk_[moe_layer];
  const std::string prefix =
      fmt::format("layers.{}.routed_experts", model_.config().num_dense_layers + moe_layer);
  const at::Tensor& gate_EhD = weight(prefix + ".gate_proj.weight");
  const at::Tensor& up_EhD = weight(prefix + ".up_proj.weight");
  const at::Tensor& down_EDh = weight(prefix + ".down_proj.weight");
  if (decoding_ != StockDecoding::kLooped) {
    return {{gate_EhD.index_select(0, expert_k).flatten(0, 1)},
            {up_EhD.index_select(0, expert_k).flatten(0, 1)},
            {down_EDh.index_select(0, expert_k).permute({1, 0, 2}).flatten(1)}};
  }
  ChosenExperts chosen;
  for (int64_t i = 0; i < expert_k.numel(); ++i) {
    const auto expert = expert_k[i].item<int64_t>();
    chosen.gate.push_back(gate_EhD[expert]);
    chosen.up.push_back(up_EhD[expert]);
    chosen.down.push_back(down_EDh[expert]);
  }
  return chosen;
}

// The experts of all MoE layers for the segment that the token of h begins.
void StockDecoder::choose(const at::Tensor& h_1D) {
  const ModelConfig& config = model_.config();
  const at::Tensor logits_LE =
      at::linear(norm(h_1D, "mask_generator.norm"), weight("mask_generator.proj.weight"))
          .view({config.num_moe_layers, config.num_experts});
  const int64_t k = config.budgets[static_cast<size_t>(budget_)].experts_per_layer;
  expert_Lk_ = std::get<1>(at::topk(logits_LE, k, 1));
  chosen_.clear();
  if (decoding_ == StockDecoding::kGatheredByToken) return;
  for (int64_t layer = 0; layer < config.num_moe_layers; ++layer) chosen_.push_back(experts_of(layer));
}

at::Tensor StockDecoder::routed(const at::Tensor& x_1D, int64_t moe_layer) const {
  const ChosenExperts experts = decoding_ == StockDecoding::kGatheredByToken
                                    ? experts_of(moe_layer)
                                    : chosen_[static_cast<size_t>(moe_layer)];
  at::Tensor sum_1D;
  for (size_t i = 0; i < experts.gate.size(); ++i) {
    const at::Tensor y_1D = swiglu_of(x_1D, experts.gate[i], experts.up[i], experts.down[i]);
    sum_1D = sum_1D.defined() ? sum_1D + y_1D : y_1D;
  }
  return sum_1D;
}

at::Tensor StockDecoder::append(int32_t token) {
  const c10::InferenceMode no_gradients;
  const ModelConfig& config = model_.config();
  const RotaryTable table =
      rotary_table(at::tensor({position_}, at::kLong), config.head_dim, config.rope_theta, at::kFloat);
  at::Tensor h_1D = weight("token_embedding.weight").narrow(0, token, 1);
  if (config.size_embedding == SizeEmbedding::kInput) {
    h_1D = h_1D + weight("size_embedding.weight").narrow(0, budget_, 1);
  }
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    if (layer == config.num_dense_layers && position_ % segment_length_ == 0) choose(h_1D);
    const std::string prefix = fmt::format("layers.{}", layer);
    h_1D = h_1D + attention(norm(h_1D, prefix + ".attention_norm"), layer, table);
    const at::Tensor normed_1D = norm(h_1D, prefix + ".ffn_norm");
    if (layer < config.num_dense_layers) {
      h_1D = h_1D + feed_forward(normed_1D, prefix + ".feed_forward");
      continue;
    }
    if (config.shared_dim() > 0) h_1D = h_1D + feed_forward(normed_1D, prefix + ".shared_expert");
    h_1D = h_1D + routed(normed_1D, layer - config.num_dense_layers);
  }
  ++position_;
  return at::linear(norm(h_1D, "final_norm"), model_.output_weight()).squeeze(0);
}

double StockDecoder::decode(int64_t num_tokens) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto vocab_size = static_cast<uint64_t>(model_.config().vocab_size);
  for (int64_t i = 0; i < num_tokens; ++i) append(static_cast<int32_t>(random_.below(vocab_size)));
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace smoe
