// The router of a Stepped MoE: from the dense layers' output to expert logits for all MoE layers at once.
//
// Shape legend: B rows, T tokens, D model width, Q segments, L MoE layers, E experts, H hidden width.
#pragma once

#include <ATen/ATen.h>

#include "smoe/model/kv_cache.h"
#include "smoe/model/model_config.h"
#include "smoe/routing/segment_map.h"

namespace smoe {

struct MaskGeneratorWeights {
  at::Tensor norm;          // [D]
  at::Tensor proj;          // [L*E, D or H], layer-major
  at::Tensor hidden_HD;     // mask_head.kind mlp only
  at::Tensor layer_gain_L;  // mask_head.normalize_layers only
};

// The hidden states [Q, D] that choose for the segments, none of them a carried one: those of single tokens
// of z_BTD, or float32 means over several. Selectors below 0 are tokens that stand before those of z_BTD: in
// the rows of `cache`, to which z_BTD has been appended already, or in `shared_prefix`, which every row
// begins with.
at::Tensor selector_states(const at::Tensor& z_BTD, const SegmentMap& segments,
                           const KvCache* cache = nullptr, const KvCache* shared_prefix = nullptr);

// Logits [Q, L, E] in float32 from the selectors' states: RMSNorm, then the head. `router_offset_BD` is added
// to the states by batch row (the size embedding when it is the router's alone); undefined for none. With
// mask_source input_independent the state is replaced by a constant, so that one mask is learned for all
// inputs.
at::Tensor mask_logits(const at::Tensor& state_QD, const MaskGeneratorWeights& weights,
                       const SegmentMap& segments, const at::Tensor& router_offset_BD,
                       const ModelConfig& config);

}  // namespace smoe
