#include "layer_forward.h"

#include "residual_norm.h"

namespace smoe {
namespace {

// The residual stream after attention, and its norm for the feed-forward part.
ResidualNorm attend(const LayerRun& run, const at::Tensor& h_BTD) {
  const double epsilon = run.config.norm_eps;
  const ResidualNorm input = residual_norm(h_BTD, {}, run.layer.attention_norm, epsilon);
  const at::Tensor branch_BTD =
      attention(input.normed, run.layer.attention, run.config, run.context.rotary, run.context.attention_mask,
                {run.context.cache, run.context.shared_prefix, run.index}, run.context.documents.get());
  return residual_norm(input.sum, branch_BTD, run.layer.ffn_norm, epsilon);
}

at::Tensor add_experts(const LayerRun& run, const at::Tensor& h_BTD, const at::Tensor& normed_BTD,
                       const at::Tensor& mask, const at::Tensor& selected, const RoutedExpertsCall& experts) {
  const at::Tensor routed_BTD = experts(normed_BTD.flatten(0, 1), mask, selected).view_as(normed_BTD);
  const SwigluWeights& shared = run.layer.shared_expert;
  return h_BTD + (shared.gate_FD.defined() ? swiglu(normed_BTD, shared) + routed_BTD : routed_BTD);
}

}  // namespace

at::Tensor run_dense_layer(const LayerRun& run, const at::Tensor& h_BTD) {
  const auto [attended_BTD, normed_BTD] = attend(run, h_BTD);
  return attended_BTD + swiglu(normed_BTD, run.layer.feed_forward);
}

at::Tensor run_planned_layer(const LayerRun& run, const at::Tensor& h_BTD, const at::Tensor& mask_QE,
                             const RoutedExpertsCall& experts) {
  const auto [attended_BTD, normed_BTD] = attend(run, h_BTD);
  return add_experts(run, attended_BTD, normed_BTD, mask_QE, {}, experts);
}

SelfRoutedLayer run_self_routed_layer(const LayerRun& run, const at::Tensor& h_BTD, const at::Tensor& count_N,
                                      const at::Tensor& selected_NE, const RoutedExpertsCall& experts) {
  const auto [attended_BTD, normed_BTD] = attend(run, h_BTD);
  TokenRouting routing = route_tokens(normed_BTD.flatten(0, 1), run.layer.router_ED, count_N,
                                      run.config.token_router, selected_NE);
  const at::Tensor output_BTD =
      add_experts(run, attended_BTD, normed_BTD, routing.weight_NE, routing.selected_NE, experts);
  return {output_BTD, std::move(routing)};
}

std::vector<at::Tensor> layer_parameters(const DecoderLayer& layer) {
  const AttentionWeights& attention = layer.attention;
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& tensor :
       {layer.attention_norm, attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj,
        attention.q_norm, attention.k_norm, layer.ffn_norm, layer.feed_forward.gate_FD,
        layer.feed_forward.up_FD, layer.feed_forward.down_DF, layer.shared_expert.gate_FD,
        layer.shared_expert.up_FD, layer.shared_expert.down_DF, layer.routed_experts.gate_EhD,
        layer.routed_experts.up_EhD, layer.routed_experts.down_EDh, layer.router_ED}) {
    if (tensor.defined()) parameters.push_back(tensor);
  }
  return parameters;
}

}  // namespace smoe
