// The named tensors of a model: the single list that initialisation, optimisation and checkpoints share.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

namespace smoe {

// Decides the learning-rate scale (mup-simple scales matrices only) and what weight decay may skip.
enum class ParameterKind {
  kEmbedding,  // token and size embeddings, output head
  kMatrix,     // attention, feed-forward and expert projections
  kRouter,     // mask generator projection, vanilla router
  kNorm,       // RMSNorm gains
  kBuffer,     // not trained, but part of the model (selection bias)
};

struct NamedParameter {
  std::string name;  // as in the checkpoint, for example layers.3.routed_experts.gate_proj.weight
  at::Tensor tensor;
  ParameterKind kind = ParameterKind::kMatrix;
};

}  // namespace smoe
