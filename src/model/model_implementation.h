// The inside of Model, which model.cpp and model_inference.cpp share.
#pragma once

#include <memory>
#include <vector>

#include "decoder_layer.h"
#include "layer_forward.h"
#include "recompute.h"
#include "single_token.h"
#include "smoe/model/layers.h"
#include "smoe/model/mask_generator.h"
#include "smoe/model/model.h"
#include "smoe/model/routed_experts.h"
#include "smoe/model/segment_layout.h"

namespace smoe {

// What the MoE layers of a forward without gradients have instead of stacked weights.
struct InferenceExperts {
  ExpertDemand demand;
  std::vector<int64_t> row_of_range;         // batch row of each token range
  std::unique_ptr<ExpertDelivery> delivery;  // null where the weights are parameters
};

// Inference on the CPU needs no stacked weights and has a faster path for single tokens.
inline bool runs_listed(const at::Tensor& h_BTD) {
  return !at::GradMode::is_enabled() && h_BTD.is_cpu() && h_BTD.scalar_type() == at::kFloat;
}

struct Model::Implementation {
  ModelConfig config;
  at::Device device = at::kCPU;
  std::vector<NamedParameter> parameters;
  at::Tensor token_embedding_VD;
  at::Tensor size_embedding;  // [budgets, D]
  std::vector<DecoderLayer> layers;
  MaskGeneratorWeights mask_generator;
  at::Tensor selection_bias_LE;
  at::Tensor final_norm;
  at::Tensor output_VD;  // undefined when tied
  ExpertPlacement placement;
  std::shared_ptr<ExpertProvider> provider;
  EncodedWeights encoded;
  ActivationCheckpointing checkpointing;

  Implementation(const ModelConfig& model_config, at::Device model_device, at::ScalarType dtype,
                 ExpertPlacement expert_placement);

  void add_mask_generator(ParameterFactory& factory);
  void check_input(const ModelInput& input) const;
  int64_t experts_of_row(const ModelInput& input, int64_t row) const;
  at::Tensor count_per_segment(const SegmentMap& segments, const ModelInput& input) const;
  at::Tensor count_per_token(const ModelInput& input) const;
  at::Tensor size_embedding_BD(const ModelInput& input) const;
  LayerContext make_context(const ModelInput& input) const;
  at::Tensor embed(const ModelInput& input) const;
  LayerRun layer_run(int64_t index, const LayerContext& context) const;
  at::Tensor run_layer(const LayerRun& run, const RecomputedBody& body,
                       const torch::autograd::variable_list& inputs, TokenRouterLosses* losses) const;
  at::Tensor run_dense_layers(at::Tensor h_BTD, const LayerContext& context) const;
  SegmentLayoutPointer layout_for(const at::Tensor& h_BTD, const std::vector<TokenRange>& ranges,
                                  const at::Tensor& counts) const;
  at::Tensor run_moe_layers(at::Tensor h_BTD, const ModelInput& input, const LayerContext& context,
                            ModelOutput& output) const;
  RoutingPlan route_segments(const at::Tensor& h_BTD, const ModelInput& input,
                             const SelectionControls& controls) const;
  bool runs_single_token(const ModelInput& input) const;
  ModelOutput forward_single_token(const ModelInput& input, const SelectionControls& controls) const;
  TokenExperts token_experts(int64_t moe_layer, const at::Tensor& mask_1E,
                             const InferenceExperts& inference) const;
  InferenceExperts start_inference_experts(const ModelInput& input, const ModelOutput& output) const;
  at::Tensor run_listed_experts(int64_t moe_layer, const at::Tensor& x_ND, const at::Tensor& mask_QE,
                                const std::vector<TokenRange>& ranges, const InferenceExperts& experts) const;
  std::vector<ExpertView> wait_for_experts(int64_t moe_layer, const std::vector<int64_t>& experts,
                                           const at::Tensor& mask_QE,
                                           const InferenceExperts& inference) const;
};

}  // namespace smoe
