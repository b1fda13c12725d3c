#include "smoe/model/layers.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

#include "causal_attention.h"
#include "document_attention.h"
#include "packed_attention.h"
#include "prefix_attention.h"
#include "projections.h"
#include "residual_norm.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

// Rotates by +angle forward and by -angle backward: nothing but the two small tables is kept.
class RotaryFunction : public torch::autograd::Function<RotaryFunction> {
 public:
  static at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
    const int64_t half = x.size(-1) / 2;
    const at::Tensor first = x.narrow(-1, 0, half);
    const at::Tensor second = x.narrow(-1, half, half);
    // On a GPU in the layout of x: the flash kernels read heads beside each other as the projections write
    // them.
    at::Tensor result = x.is_cpu() ? at::empty(x.sizes(), x.options()) : at::empty_like(x);
    at::Tensor result_first = result.narrow(-1, 0, half);
    at::Tensor result_second = result.narrow(-1, half, half);
    const double sign = inverse ? -1.0 : 1.0;
    at::mul_out(result_first, first, cos);
    result_first.addcmul_(second, sin, -sign);
    at::mul_out(result_second, second, cos);
    result_second.addcmul_(first, sin, sign);
    return result;
  }

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& cos, const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotate(x, cos, sin, false);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {rotate(gradients[0], saved[0], saved[1], true), at::Tensor(), at::Tensor()};
  }
};

class ScaleGradientFunction : public torch::autograd::Function<ScaleGradientFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double scale) {
    context->saved_data["scale"] = scale;
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * context->saved_data["scale"].toDouble(), at::Tensor()};
  }
};

// Attention without a mask or earlier tokens on the CPU: what training on text and scoring run.
at::Tensor plain_causal_attention(const at::Tensor& x_BTD, const AttentionWeights& weights,
                                  const ModelConfig& config, const RotaryTable& table) {
  std::vector<at::Tensor> qkv = project(x_BTD, {weights.q_proj, weights.k_proj, weights.v_proj});
  const auto norm_heads = [&](at::Tensor& heads, const at::Tensor& gain) {
    heads = rms_norm(heads.unflatten(2, {-1, config.head_dim}), gain, config.norm_eps).flatten(2);
  };
  if (weights.q_norm.defined()) {
    norm_heads(qkv[0], weights.q_norm);
    norm_heads(qkv[1], weights.k_norm);
  }
  const at::Tensor mixed = causal_attention(qkv[0], qkv[1], qkv[2], table,
                                            {config.num_heads, config.num_kv_heads, config.head_dim});
  return project(mixed, {weights.o_proj})[0];
}

// [B, T, heads * K] to [B, heads, T, K].
at::Tensor split_heads(const at::Tensor& x, int64_t num_heads, int64_t head_dim) {
  return x.view({x.size(0), x.size(1), num_heads, head_dim}).transpose(1, 2);
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double epsilon) {
  return residual_norm(x, {}, gain, epsilon).normed;
}

at::Tensor swiglu(const at::Tensor& x, const SwigluWeights& weights) {
  if (runs_fused(x, weights.gate_FD)) return fused_swiglu(x, weights);
  const at::Tensor gate = at::silu(at::linear(x, weights.gate_FD));
  return at::linear(gate * at::linear(x, weights.up_FD), weights.down_DF);
}

RotaryTable rotary_table(const at::Tensor& positions, int64_t head_dim, double theta, at::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(at::kDouble).device(positions.device());
  const at::Tensor exponents = at::arange(0, head_dim, 2, options) / static_cast<double>(head_dim);
  const at::Tensor frequencies = at::pow(at::full({}, theta, options), -exponents);
  const at::Tensor rows = positions.dim() == 1 ? positions.unsqueeze(0) : positions;
  const at::Tensor angles = (rows.to(at::kDouble).unsqueeze(-1) * frequencies).unsqueeze(1);
  return {at::cos(angles).to(dtype), at::sin(angles).to(dtype)};
}

at::Tensor apply_rotary(const at::Tensor& x_BHTK, const RotaryTable& table) {
  return RotaryFunction::apply(x_BHTK, table.cos, table.sin);
}

at::Tensor attention(const at::Tensor& x_BTD, const AttentionWeights& weights, const ModelConfig& config,
                     const RotaryTable& table, const at::Tensor& mask_BTT, const EarlierTokens& earlier,
                     const PackedDocuments* documents) {
  const bool plain = !mask_BTT.defined() && !earlier.cache && !earlier.shared_prefix && documents == nullptr;
  if (plain && x_BTD.size(1) > 0 && runs_fused(x_BTD, weights.q_proj)) {
    return plain_causal_attention(x_BTD, weights, config, table);
  }
  at::Tensor q = split_heads(at::linear(x_BTD, weights.q_proj), config.num_heads, config.head_dim);
  at::Tensor k = split_heads(at::linear(x_BTD, weights.k_proj), config.num_kv_heads, config.head_dim);
  at::Tensor v = split_heads(at::linear(x_BTD, weights.v_proj), config.num_kv_heads, config.head_dim);
  if (weights.q_norm.defined()) {
    q = rms_norm(q, weights.q_norm, config.norm_eps);
    k = rms_norm(k, weights.k_norm, config.norm_eps);
  }
  q = apply_rotary(q, table);
  k = apply_rotary(k, table);
  if (earlier.cache) {
    std::tie(k, v) = earlier.cache->append(earlier.layer, k, v);
  }
  if (earlier.shared_prefix) {
    const auto [prefix_k, prefix_v] = earlier.shared_prefix->stored(earlier.layer);
    const at::Tensor mixed = prefix_attention(q, {prefix_k, prefix_v}, {k, v}, mask_BTT);
    return at::linear(mixed.transpose(1, 2).flatten(2), weights.o_proj);
  }
  if (documents != nullptr && !q.is_cpu()) {
    const at::Tensor mixed =
        packed_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), *documents);
    return at::linear(mixed.flatten(2), weights.o_proj);
  }
  const bool single_token = q.size(2) == 1;
  if (config.num_kv_heads != config.num_heads && single_token && documents == nullptr) {
    // The query heads of a group become the queries of their key head: no copy of the cache at every step.
    q = q.view({q.size(0), config.num_kv_heads, -1, config.head_dim});
  } else if (config.num_kv_heads != config.num_heads) {
    // Expanded by hand: the fused CPU kernel has no grouped-query form and would fall back to a slower one.
    k = repeat_heads(k, config.num_heads);
    v = repeat_heads(v, config.num_heads);
  }
  if (documents != nullptr) {
    const at::Tensor mixed = document_attention(q, k, v, documents->lengths);
    return at::linear(mixed.transpose(1, 2).flatten(2), weights.o_proj);
  }
  std::optional<at::Tensor> mask;
  if (mask_BTT.defined()) {
    mask = mask_BTT.unsqueeze(1);
  }
  const at::Tensor mixed = at::scaled_dot_product_attention(
      q, k, v, mask, /*dropout_p=*/0.0,
      /*is_causal=*/!mask.has_value() && !single_token && k.size(2) == q.size(2));
  if (single_token) return at::linear(mixed.flatten(1).unsqueeze(1), weights.o_proj);
  return at::linear(mixed.transpose(1, 2).flatten(2), weights.o_proj);
}

at::Tensor additive_mask(const at::Tensor& allowed, at::ScalarType dtype) {
  const at::Tensor forbidden = allowed.logical_not();
  return at::zeros(allowed.sizes(), allowed.options().dtype(dtype))
      .masked_fill_(forbidden, -std::numeric_limits<double>::infinity());
}

at::Tensor document_causal_mask(const at::Tensor& documents_BT) {
  const int64_t num_tokens = documents_BT.size(1);
  const at::Tensor same = documents_BT.unsqueeze(2) == documents_BT.unsqueeze(1);
  return same.logical_and(at::ones({num_tokens, num_tokens}, same.options()).tril());
}

at::Tensor scale_gradient(const at::Tensor& x, double scale) {
  if (scale == 1.0) {
    return x;
  }
  if (scale == 0.0) {
    return x.detach();
  }
  return ScaleGradientFunction::apply(x, scale);
}

}  // namespace smoe
