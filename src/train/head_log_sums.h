// Log-sum-exp of the logits of an output head that are not kept: what a loss without gradients needs. CPU
// only.
//
// Shape legend: N tokens, D model width, V vocabulary.
#pragma once

#include <ATen/ATen.h>

namespace smoe {

struct HeadLogSums {
  at::Tensor log_sum_N;       // float64
  at::Tensor target_logit_N;  // float64
};

// Of the logits hidden_ND * weight_VD^T, both float32 or both float64; `targets_N` int64 in [0, V), V > 0.
// The same for every number of threads.
HeadLogSums head_log_sums(const at::Tensor& hidden_ND, const at::Tensor& weight_VD,
                          const at::Tensor& targets_N);

}  // namespace smoe
