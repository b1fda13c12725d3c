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

// Gate and up of all selected rows, by expert and then by row, where they are kept for the backward.
struct KeptActivations {
  at::Tensor gate_Rh;
  at::Tensor up_Rh;
};

// float32 and float64. Fills `kept` unless it is null.
at::Tensor routed_experts_cpu_forward(const at::Tensor& x_ND, const ExpertWeights& weights,
                                      const ExpertSchedule& schedule, KeptActivations* kept = nullptr);
// With `existing` weight gradients, defined all three, adds to them and returns none. Without `kept`
// activations it computes them anew.
RoutedExpertGradients routed_experts_cpu_backward(const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                                                  const ExpertWeights& weights,
                                                  const ExpertSchedule& schedule, int64_t num_segments,
                                                  NeededGradients needed, const ExpertWeights& existing = {},
                                                  const KeptActivations& kept = {});

}  // namespace smoe
