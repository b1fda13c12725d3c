#include "smoe/bench/stock_model.h"

#include <fmt/format.h>

#include "smoe/core/error.h"
#include "smoe/model/mask_generator.h"
#include "smoe/routing/routing_plan.h"

namespace smoe {
namespace {

// All three take x [N, D], stacked weights [E, h, D], [E, h, D], [E, D, h] and a mask [Q, E] of equal
// segments.
struct StackedWeights {
  at::Tensor gate_EhD;
  at::Tensor up_EhD;
  at::Tensor down_EDh;
};

at::Tensor masked_dense(const at::Tensor& x_ND, const StackedWeights& weights, const at::Tensor& mask_QE) {
  const int64_t num_experts = weights.gate_EhD.size(0);
  const int64_t width = num_experts * weights.gate_EhD.size(1);
  const int64_t dim = x_ND.size(1);
  const at::Tensor mask_NE1 = mask_QE.repeat_interleave(x_ND.size(0) / mask_QE.size(0), 0).unsqueeze(2);
  const at::Tensor gate_Nw = at::linear(x_ND, weights.gate_EhD.view({width, dim}));
  const at::Tensor up_Nw = at::linear(x_ND, weights.up_EhD.view({width, dim}));
  const at::Tensor hidden_NEh = (at::silu(gate_Nw) * up_Nw).view({x_ND.size(0), num_experts, -1}) * mask_NE1;
  return at::matmul(hidden_NEh.view({-1, width}), weights.down_EDh.transpose(1, 2).reshape({width, dim}));
}

at::Tensor gathered(const at::Tensor& x_ND, const StackedWeights& weights, const at::Tensor& mask_QE) {
  const int64_t num_segments = mask_QE.size(0);
  const int64_t dim = x_ND.size(1);
  const at::Tensor expert_Qk = mask_QE.detach().nonzero().select(1, 1).view({num_segments, -1});
  const at::Tensor expert_R = expert_Qk.flatten();
  const at::Tensor mask_Qk1 = mask_QE.gather(1, expert_Qk).unsqueeze(2);
  const at::Tensor x_QSD = x_ND.view({num_segments, -1, dim});
  const auto select = [&](const at::Tensor& stacked) { return stacked.index_select(0, expert_R); };
  const at::Tensor gate_QwD = select(weights.gate_EhD).view({num_segments, -1, dim});
  const at::Tensor up_QwD = select(weights.up_EhD).view({num_segments, -1, dim});
  const at::Tensor down_QwD = select(weights.down_EDh.transpose(1, 2)).reshape({num_segments, -1, dim});
  const at::Tensor hidden_QSw =
      at::silu(at::bmm(x_QSD, gate_QwD.transpose(1, 2))) * at::bmm(x_QSD, up_QwD.transpose(1, 2));
  const int64_t k = expert_Qk.size(1);
  const at::Tensor masked_QSw =
      (hidden_QSw.view({num_segments, x_QSD.size(1), k, -1}) * mask_Qk1.unsqueeze(1)).flatten(2);
  return at::bmm(masked_QSw, down_QwD).view({-1, dim});
}

at::Tensor grouped(const at::Tensor& x_ND, const StackedWeights& weights, const at::Tensor& mask_QE) {
  const int64_t num_tokens = x_ND.size(0);
  const at::Tensor mask_EN = mask_QE.t().repeat_interleave(num_tokens / mask_QE.size(0), 1);
  const at::Tensor selected_EN = mask_EN.detach().ne(0);
  const at::Tensor pair_R2 = selected_EN.nonzero();
  const at::Tensor token_R = pair_R2.select(1, 1);
  const at::Tensor offsets_E = selected_EN.sum(1).cumsum(0).to(at::kInt);
  const at::Tensor mask_R1 =
      mask_EN.flatten().index_select(0, pair_R2.select(1, 0) * num_tokens + token_R).unsqueeze(1);
  const at::Tensor x_RD = x_ND.index_select(0, token_R);
  const at::Tensor gate_Rh = at::_grouped_mm(x_RD, weights.gate_EhD.transpose(1, 2), offsets_E);
  const at::Tensor up_Rh = at::_grouped_mm(x_RD, weights.up_EhD.transpose(1, 2), offsets_E);
  const at::Tensor hidden_Rh = at::silu(gate_Rh) * up_Rh * mask_R1;
  const at::Tensor y_RD = at::_grouped_mm(hidden_Rh, weights.down_EDh.transpose(1, 2), offsets_E);
  return at::zeros_like(x_ND).index_add(0, token_R, y_RD);
}

at::Tensor rotate(const at::Tensor& x_BHTK, const RotaryTable& table) {
  const std::vector<at::Tensor> halves = x_BHTK.chunk(2, -1);
  return at::cat(
      {halves[0] * table.cos - halves[1] * table.sin, halves[1] * table.cos + halves[0] * table.sin}, -1);
}

}  // namespace

std::string stock_name(StockExperts experts) {
  switch (experts) {
    case StockExperts::kMaskedDense:
      return "masked-dense";
    case StockExperts::kGathered:
      return "gather-bmm";
    case StockExperts::kGrouped:
      return "grouped-mm";
  }
  return "";
}

StockModel::StockModel(const Model& model, StockExperts experts) : model_(model), experts_(experts) {
  SMOE_ASSERT(model.config().architecture == Architecture::kSteppedMoe);
  for (const NamedParameter& parameter : model.parameters()) weights_[parameter.name] = parameter.tensor;
}

at::Tensor StockModel::norm(const at::Tensor& x, const std::string& name) const {
  const at::Tensor& gain = weight(name + ".weight");
  return at::rms_norm(x, gain.sizes(), gain, model_.config().norm_eps);
}

at::Tensor StockModel::attention(const at::Tensor& x_BTD, const std::string& prefix,
                                 const RotaryTable& table) const {
  const ModelConfig& config = model_.config();
  const auto project = [&](const std::string& name, int64_t heads) {
    return at::linear(x_BTD, weight(prefix + name + ".weight"))
        .view({x_BTD.size(0), x_BTD.size(1), heads, config.head_dim})
        .transpose(1, 2);
  };
  at::Tensor q = project(".q_proj", config.num_heads);
  at::Tensor k = project(".k_proj", config.num_kv_heads);
  at::Tensor v = project(".v_proj", config.num_kv_heads);
  if (config.qk_norm) {
    q = norm(q, prefix + ".q_norm");
    k = norm(k, prefix + ".k_norm");
  }
  q = rotate(q, table);
  k = rotate(k, table);
  if (const int64_t group = config.num_heads / config.num_kv_heads; group > 1) {
    k = k.repeat_interleave(group, 1);
    v = v.repeat_interleave(group, 1);
  }
  const at::Tensor mixed = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
  return at::linear(mixed.transpose(1, 2).flatten(2), weight(prefix + ".o_proj.weight"));
}

at::Tensor StockModel::feed_forward(const at::Tensor& x, const std::string& prefix) const {
  const at::Tensor gate = at::silu(at::linear(x, weight(prefix + ".gate_proj.weight")));
  const at::Tensor up = at::linear(x, weight(prefix + ".up_proj.weight"));
  return at::linear(gate * up, weight(prefix + ".down_proj.weight"));
}

// The routing is ours in all compositions, which is to their advantage.
at::Tensor StockModel::mask_QLE(const at::Tensor& h_BTD, const ModelInput& input) const {
  const ModelConfig& config = model_.config();
  // The composition is that of the default head.
  SMOE_ASSERT(config.routing.mask_head.kind == MaskHeadKind::kLinear &&
              !config.routing.mask_head.normalize_layers);
  const MaskGeneratorWeights generator{
      weight("mask_generator.norm.weight"), weight("mask_generator.proj.weight"), {}, {}};
  const at::Tensor logits_QLE =
      mask_logits(selector_states(h_BTD, input.segments), generator, input.segments, {}, config);
  const auto budget = static_cast<size_t>(input.budget_of_row.front());
  const at::Tensor count_Q =
      at::full({input.segments.num_segments()}, config.budgets[budget].experts_per_layer, at::kLong);
  return make_routing_plan(logits_QLE, count_Q, config.routing, {}).mask_QLE;
}

at::Tensor StockModel::routed(const at::Tensor& x_ND, const at::Tensor& mask_QE,
                              const std::string& prefix) const {
  const StackedWeights weights{weight(prefix + ".gate_proj.weight"), weight(prefix + ".up_proj.weight"),
                               weight(prefix + ".down_proj.weight")};
  switch (experts_) {
    case StockExperts::kMaskedDense:
      return masked_dense(x_ND, weights, mask_QE);
    case StockExperts::kGathered:
      return gathered(x_ND, weights, mask_QE);
    case StockExperts::kGrouped:
      return grouped(x_ND, weights, mask_QE);
  }
  return {};
}

at::Tensor StockModel::forward(const ModelInput& input) const {
  const ModelConfig& config = model_.config();
  const RotaryTable table = rotary_table(at::arange(input.tokens_BT.size(1), at::kLong), config.head_dim,
                                         config.rope_theta, at::kFloat);
  at::Tensor h_BTD = at::embedding(weight("token_embedding.weight"), input.tokens_BT);
  if (config.size_embedding == SizeEmbedding::kInput) {
    h_BTD = h_BTD + weight("size_embedding.weight")[input.budget_of_row.front()];
  }
  at::Tensor masks_QLE;
  for (int64_t index = 0; index < config.num_layers(); ++index) {
    const std::string prefix = fmt::format("layers.{}", index);
    if (index == config.num_dense_layers) masks_QLE = mask_QLE(h_BTD, input);
    h_BTD = h_BTD + attention(norm(h_BTD, prefix + ".attention_norm"), prefix + ".attention", table);
    const at::Tensor normed = norm(h_BTD, prefix + ".ffn_norm");
    if (index < config.num_dense_layers) {
      h_BTD = h_BTD + feed_forward(normed, prefix + ".feed_forward");
      continue;
    }
    if (config.shared_dim() > 0) h_BTD = h_BTD + feed_forward(normed, prefix + ".shared_expert");
    h_BTD = h_BTD + routed(normed.flatten(0, 1), masks_QLE.select(1, index - config.num_dense_layers),
                           prefix + ".routed_experts")
                        .view_as(normed);
  }
  return norm(h_BTD, "final_norm");
}

at::Tensor StockModel::loss(const at::Tensor& hidden_BTD, const at::Tensor& targets_BT) const {
  const at::Tensor logits_NV = at::linear(hidden_BTD.flatten(0, 1), model_.output_weight());
  return at::cross_entropy_loss(logits_NV, targets_BT.flatten(), {}, at::Reduction::Sum);
}

}  // namespace smoe
