// The weights of one decoder layer of any architecture, and their allocation under checkpoint names.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "smoe/model/layers.h"
#include "smoe/model/model.h"
#include "smoe/model/model_config.h"
#include "smoe/model/parameters.h"
#include "smoe/model/routed_experts.h"

namespace smoe {

// Which of the members are defined depends on the kind of the layer.
struct DecoderLayer {
  at::Tensor attention_norm;
  AttentionWeights attention;
  at::Tensor ffn_norm;
  SwigluWeights feed_forward;    // dense layers
  SwigluWeights shared_expert;   // MoE layers with shared experts
  ExpertWeights routed_experts;  // MoE layers, with placement kParameters
  at::Tensor router_ED;          // vanilla MoE
};

// Allocates uninitialised parameters and keeps the list of their names. Buffers, and the gradients that
// parameters accept, are at least float32.
class ParameterFactory {
 public:
  ParameterFactory(at::TensorOptions options, std::vector<NamedParameter>& parameters)
      : options_(options), parameters_(parameters) {}
  at::Tensor add(const std::string& name, at::IntArrayRef shape, ParameterKind kind);

 private:
  at::TensorOptions options_;
  std::vector<NamedParameter>& parameters_;
};

// Layer `index` of the model, counted from the embedding.
DecoderLayer add_decoder_layer(ParameterFactory& factory, int64_t index, const ModelConfig& config,
                               ExpertPlacement placement);

}  // namespace smoe
