// Differentiable top-k: the soft mask that carries the gradient, and the hard mask used in the forward.
//
// Shape legend of the routing area: R rows, E experts, Q segments, L MoE layers.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "smoe/routing/routing_config.h"

namespace smoe {

// The exact solution of the relaxation, one row at a time.
//
// Entropy kind: lambda_i = min(1, exp(s_i / temperature + shift)) with the one shift that makes the row
// sum to its budget, found by an active-set iteration that ends after finitely many rounds (no
// iteration count to tune). The gradient is the implicit one: with U the unsaturated entries,
//   ds_i = lambda_i * (g_i - sum_U lambda_j g_j / sum_U lambda_j) / temperature  on U, 0 elsewhere.
// Sigmoid kind: lambda = sigmoid((s - shift) / temperature).
//
// `scores_RE` float32 or float64 [R, E] on any device (computed in its own dtype); `sums_R` the
// row sums, real numbers in [0, E], float64 [R] on the CPU. Returns lambda [R, E], differentiable in
// the scores. A score of -inf is a forbidden expert (lambda 0). Sum 0 gives zeros and sum = number of
// allowed experts gives ones, both with zero gradient.
// Throws NumericError on NaN or +inf scores, on a sum outside [0, E], on a row with fewer finite
// scores than its sum, and on a temperature that is not positive. Scores on a GPU are not checked; a bad row
// gives NaN there.
at::Tensor soft_top_k(const at::Tensor& scores_RE, const at::Tensor& sums_R, double temperature,
                      SoftTopKKind kind = SoftTopKKind::kEntropy);

// Exactly `counts_R[r]` ones a row at the largest scores, as float32 [R, E]. Ties go to the lowest index, as
// in a stable sort, so that masks of the same scores are nested over counts. `scores_RE` float32 or float64;
// `counts_R` int64 [R] on the CPU. Not differentiable. Same errors as soft_top_k; on a GPU a row that would
// be refused has NaN instead of ones, so that the loss shows it.
at::Tensor hard_top_k(const at::Tensor& scores_RE, const at::Tensor& counts_R);

// Value of `hard`, gradient of `soft` (straight-through). Same shapes; the result is bit for bit `hard`.
at::Tensor straight_through(const at::Tensor& hard, const at::Tensor& soft);

}  // namespace smoe
