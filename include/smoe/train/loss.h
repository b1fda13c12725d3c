// Output head and cross-entropy in one operation that never holds the logits of all tokens.
//
// Shape legend of the training area: B rows, T tokens, N = B*T flattened tokens, C tokens of one chunk,
// D model width, V vocabulary, L MoE layers, E experts.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace smoe {

struct HeadLossOptions {
  double z_loss_weight = 0.0;   // of logsumexp(logits)^2, averaged like the cross-entropy
  int64_t chunk_tokens = 1024;  // tokens whose logits exist at one time
};

struct HeadLoss {
  // Scalar: sum over tokens of weight * (cross-entropy + z_loss_weight * logsumexp^2). Differentiable in
  // hidden states and head weight.
  at::Tensor weighted_loss;
  // [N] cross-entropy in nats, without weight and z-loss, detached; 0 where the weight is 0.
  at::Tensor cross_entropy_N;
};

// The head `hidden_ND @ weight_VD^T` followed by cross-entropy against `targets_N` (int64 in [0, V)), each
// token times `weights_N` (float32 or float64; 0 = not a target, its target id is ignored and may be any).
// Targets and weights may be on the CPU while the rest is on a GPU; the tokens without weight are then found
// without waiting for the device. Softmax and sums are computed in float32 (float64 for float64 inputs).
// Logits are computed once: the gradients are formed in the forward pass, chunk by chunk, when autograd asks
// for them. Throws std::logic_error on shapes that do not fit.
HeadLoss head_cross_entropy(const at::Tensor& hidden_ND, const at::Tensor& weight_VD,
                            const at::Tensor& targets_N, const at::Tensor& weights_N,
                            const HeadLossOptions& options);

}  // namespace smoe
