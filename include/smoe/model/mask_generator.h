// The router of a Stepped MoE: from the dense layers' output to expert logits for all MoE layers at once.
//
// Shape legend: N flattened tokens, D model width, Q segments, L MoE layers, E experts.
#pragma once

#include <ATen/ATen.h>

#include "smoe/model/model_config.h"
#include "smoe/routing/segment_map.h"

namespace smoe {

struct MaskGeneratorWeights {
  at::Tensor norm;  // [D]
  at::Tensor proj;  // [L*E, D], layer-major
};

// Logits [Q, L, E] in float32, from the hidden state of each segment's selector token: RMSNorm,
// then one linear map. `router_offset_BD` is added to the selectors' states by batch row (the size embedding
// when it is the router's alone); undefined for none. With mask_source input_independent the state is
// replaced by a constant, so that one mask is learned for all inputs.
at::Tensor mask_logits(const at::Tensor& z_ND, const MaskGeneratorWeights& weights,
                       const SegmentMap& segments, const at::Tensor& router_offset_BD,
                       const ModelConfig& config);

}  // namespace smoe
