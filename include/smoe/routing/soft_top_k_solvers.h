// The solvers behind soft_top_k, without checks or autograd: loops over rows for the CPU, and tensor
// operations for every other device. Use soft_top_k; these are separate so that the tests can hold
// one against the other.
//
// Shape legend: R rows, E experts. Scores float32 or float64 [R, E], no NaN, no +inf; sums float64 [R]
// on the CPU, at most the number of scores above -inf. Results have the scores' dtype and device.
#pragma once

#include <ATen/ATen.h>

#include "smoe/routing/routing_config.h"

namespace smoe {

// lambda [R, E] by loops: active set (entropy), safeguarded Newton (sigmoid). CPU only.
at::Tensor soft_top_k_forward_rows(const at::Tensor& scores_RE, const at::Tensor& sums_R, double temperature,
                                   SoftTopKKind kind);

// Gradient of the scores from lambda and the gradient of lambda, by loops. CPU only.
at::Tensor soft_top_k_backward_rows(const at::Tensor& gradient_RE, const at::Tensor& lambda_RE,
                                    double temperature, SoftTopKKind kind);

// The same by tensor operations in float64, without waiting for the device: one sort (entropy), bisection
// (sigmoid).
at::Tensor soft_top_k_forward_tensor(const at::Tensor& scores_RE, const at::Tensor& sums_R,
                                     double temperature, SoftTopKKind kind);
at::Tensor soft_top_k_backward_tensor(const at::Tensor& gradient_RE, const at::Tensor& lambda_RE,
                                      double temperature, SoftTopKKind kind);

// hard_top_k by one sort, without waiting for the device. A row that hard_top_k refuses on the CPU has NaN in
// place of its ones.
at::Tensor hard_top_k_by_sort(const at::Tensor& scores_RE, const at::Tensor& counts_R);

}  // namespace smoe
