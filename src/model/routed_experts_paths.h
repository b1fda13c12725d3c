// The implementation behind routed_experts_sparse on the CPU: fused loops. It computes outside autograd; the
// caller has checked shapes and dtypes and passes contiguous tensors.
#pragma once

#include <ATen/ATen.h>

#include "expert_schedule.h"
#include "smoe/model/routed_experts.h"

namespace smoe {

struct NeededGradients {
  bool x = true;
  bool weights = true;
};

// Undefined where not needed. `mask_QE` is always there, in float64 on this path.
struct RoutedExpertGradients {
  at::Tensor x_ND;
  ExpertWeights weights;
  at::Tensor mask_QE;
};

// float32 and float64.
at::Tensor routed_experts_cpu_forward(const at::Tensor& x_ND, const ExpertWeights& weights,
                                      const ExpertSchedule& schedule);
// With `existing` weight gradients, defined all three, adds to them and returns none.
RoutedExpertGradients routed_experts_cpu_backward(const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                                                  const ExpertWeights& weights,
                                                  const ExpertSchedule& schedule, int64_t num_segments,
                                                  NeededGradients needed, const ExpertWeights& existing = {});

}  // namespace smoe
