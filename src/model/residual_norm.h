// The addition of a branch to the residual stream and the RMSNorm after it, as one pass over memory, forward
// and backward. Apart, they are five passes and two more tensors.
//
// Shape legend: N flattened tokens, D model width.
#pragma once

#include <ATen/ATen.h>

namespace smoe {

struct ResidualNorm {
  at::Tensor sum;     // h + branch
  at::Tensor normed;  // gain * sum / sqrt(mean(sum^2) + epsilon)
};

// `h` and `branch` of one shape [..., D]; an undefined branch counts as zeros and `sum` is then a view of
// `h`, whose gradient is added up here. Differentiable once in h, branch and gain. CPU float32 and float64
// run the fused loops, everything else LibTorch's operators.
ResidualNorm residual_norm(const at::Tensor& h, const at::Tensor& branch, const at::Tensor& gain,
                           double epsilon);

}  // namespace smoe
