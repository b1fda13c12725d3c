// Per-token routing of the vanilla MoE, the baseline that Stepped MoE is compared with.
//
// Shape legend: N tokens, D model width, E experts.
#pragma once

#include <ATen/ATen.h>

#include "smoe/model/model_config.h"

namespace smoe {

struct TokenRouting {
  at::Tensor weight_NE;          // routing weights of the chosen experts, 0 elsewhere; differentiable
  at::Tensor probability_sum_E;  // float32, differentiable: sum over tokens of the softmax
  at::Tensor selected_count_E;   // int64
  at::Tensor selected_NE;        // bool: the chosen experts
  at::Tensor z_loss_sum;         // float32 scalar, differentiable: sum over tokens of logsumexp^2
};

// Softmax over router logits of x [N, D] in float32, the k largest probabilities (ties to the lowest
// index), renormalised to sum 1 if configured. `count_N` int64 [N] on the CPU: k of each token. With
// `selected_NE` of an earlier call that choice is kept, whatever the probabilities are.
TokenRouting route_tokens(const at::Tensor& x_ND, const at::Tensor& router_ED, const at::Tensor& count_N,
                          const TokenRouterConfig& config, const at::Tensor& selected_NE = {});

}  // namespace smoe
