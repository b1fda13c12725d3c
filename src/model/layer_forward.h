// The computation of single decoder layers, as functions of their input that can be called a second time.
#pragma once

#include <functional>
#include <memory>

#include "decoder_layer.h"
#include "smoe/model/kv_cache.h"
#include "smoe/model/layers.h"
#include "smoe/model/model_config.h"
#include "smoe/model/token_router.h"

namespace smoe {

// What every layer of one forward needs. Handles only, so that a copy can be kept for a recomputation.
struct LayerContext {
  RotaryTable rotary;
  at::Tensor attention_mask;
  KvCache* cache = nullptr;                                    // of generation
  const KvCache* shared_prefix = nullptr;                      // of scoring
  std::shared_ptr<const PackedDocuments> documents = nullptr;  // of packed rows
};

// A layer of a model. `index` counts from the embedding.
struct LayerRun {
  const ModelConfig& config;
  const DecoderLayer& layer;
  int64_t index = 0;
  LayerContext context;
};

at::Tensor run_dense_layer(const LayerRun& run, const at::Tensor& h_BTD);

// The routed experts of a layer for x [N, D] under a mask [segments or tokens, E]; `selected` (bool) is the
// set of its chosen entries, undefined where they are the entries other than 0.
using RoutedExpertsCall =
    std::function<at::Tensor(const at::Tensor& x_ND, const at::Tensor& mask, const at::Tensor& selected)>;

// A MoE layer whose mask is given.
at::Tensor run_planned_layer(const LayerRun& run, const at::Tensor& h_BTD, const at::Tensor& mask_QE,
                             const RoutedExpertsCall& experts);

// A layer that routes by itself: the new hidden state, and the routing for the losses. `selected_NE`, if
// defined, is the choice of an earlier run that has to be repeated.
struct SelfRoutedLayer {
  at::Tensor h_BTD;
  TokenRouting routing;
};
SelfRoutedLayer run_self_routed_layer(const LayerRun& run, const at::Tensor& h_BTD, const at::Tensor& count_N,
                                      const at::Tensor& selected_NE, const RoutedExpertsCall& experts);

// Every parameter of the layer, as handles.
std::vector<at::Tensor> layer_parameters(const DecoderLayer& layer);

}  // namespace smoe
