#include "decoder_layer.h"

#include <fmt/format.h>

namespace smoe {
namespace {

SwigluWeights add_swiglu(ParameterFactory& factory, const std::string& prefix, int64_t hidden, int64_t dim) {
  SwigluWeights weights;
  weights.gate_FD = factory.add(prefix + ".gate_proj.weight", {hidden, dim}, ParameterKind::kMatrix);
  weights.up_FD = factory.add(prefix + ".up_proj.weight", {hidden, dim}, ParameterKind::kMatrix);
  weights.down_DF = factory.add(prefix + ".down_proj.weight", {dim, hidden}, ParameterKind::kMatrix);
  return weights;
}

AttentionWeights add_attention(ParameterFactory& factory, const std::string& prefix,
                               const ModelConfig& config) {
  const int64_t q_dim = config.num_heads * config.head_dim;
  const int64_t kv_dim = config.num_kv_heads * config.head_dim;
  AttentionWeights weights;
  weights.q_proj = factory.add(prefix + ".q_proj.weight", {q_dim, config.dim}, ParameterKind::kMatrix);
  weights.k_proj = factory.add(prefix + ".k_proj.weight", {kv_dim, config.dim}, ParameterKind::kMatrix);
  weights.v_proj = factory.add(prefix + ".v_proj.weight", {kv_dim, config.dim}, ParameterKind::kMatrix);
  weights.o_proj = factory.add(prefix + ".o_proj.weight", {config.dim, q_dim}, ParameterKind::kMatrix);
  if (config.qk_norm) {
    weights.q_norm = factory.add(prefix + ".q_norm.weight", {config.head_dim}, ParameterKind::kNorm);
    weights.k_norm = factory.add(prefix + ".k_norm.weight", {config.head_dim}, ParameterKind::kNorm);
  }
  return weights;
}

ExpertWeights add_experts(ParameterFactory& factory, const std::string& prefix, const ModelConfig& config) {
  const int64_t num_experts = config.num_experts;
  ExpertWeights weights;
  weights.gate_EhD = factory.add(prefix + ".gate_proj.weight", {num_experts, config.expert_dim, config.dim},
                                 ParameterKind::kMatrix);
  weights.up_EhD = factory.add(prefix + ".up_proj.weight", {num_experts, config.expert_dim, config.dim},
                               ParameterKind::kMatrix);
  weights.down_EDh = factory.add(prefix + ".down_proj.weight", {num_experts, config.dim, config.expert_dim},
                                 ParameterKind::kMatrix);
  return weights;
}

}  // namespace

at::Tensor ParameterFactory::add(const std::string& name, at::IntArrayRef shape, ParameterKind kind) {
  const at::ScalarType dtype = at::typeMetaToScalarType(options_.dtype());
  const at::ScalarType exact_dtype = at::promote_types(dtype, at::kFloat);
  // A buffer moves by less than a rounding of bfloat16.
  const bool is_buffer = kind == ParameterKind::kBuffer;
  at::Tensor tensor = at::empty(shape, options_.dtype(is_buffer ? exact_dtype : dtype));
  tensor.set_requires_grad(!is_buffer);
  // Gradients that are float32 already are not rounded on their way to a bfloat16 parameter.
  if (!is_buffer && dtype != exact_dtype) tensor.set_grad_dtype(exact_dtype);
  parameters_.push_back({name, tensor, kind});
  return tensor;
}

DecoderLayer add_decoder_layer(ParameterFactory& factory, int64_t index, const ModelConfig& config,
                               ExpertPlacement placement) {
  const std::string prefix = fmt::format("layers.{}", index);
  DecoderLayer layer;
  layer.attention_norm = factory.add(prefix + ".attention_norm.weight", {config.dim}, ParameterKind::kNorm);
  layer.attention = add_attention(factory, prefix + ".attention", config);
  layer.ffn_norm = factory.add(prefix + ".ffn_norm.weight", {config.dim}, ParameterKind::kNorm);
  if (index < config.num_dense_layers) {
    layer.feed_forward = add_swiglu(factory, prefix + ".feed_forward", config.dense_ffn_dim, config.dim);
    return layer;
  }
  if (config.shared_dim() > 0) {
    layer.shared_expert = add_swiglu(factory, prefix + ".shared_expert", config.shared_dim(), config.dim);
  }
  if (placement == ExpertPlacement::kParameters) {
    layer.routed_experts = add_experts(factory, prefix + ".routed_experts", config);
  }
  if (config.architecture == Architecture::kVanillaMoe) {
    layer.router_ED =
        factory.add(prefix + ".router.weight", {config.num_experts, config.dim}, ParameterKind::kRouter);
  }
  return layer;
}

}  // namespace smoe
