// The two implementations behind routed_experts_sparse: fused loops on the CPU, grouped matrix products in
// ATen operators for CUDA. Both compute outside autograd; the caller has checked shapes and dtypes and passes
// contiguous tensors.
#pragma once

#include <ATen/ATen.h>

#include "expert_schedule.h"
#include "smoe/model/routed_experts.h"

namespace smoe {

struct NeededGradients {
  bool x = true;
  bool weights = true;
};

// Undefined where not needed. `mask_QE` is always there, float64 on the CPU path, float32 on the other.
struct RoutedExpertGradients {
  at::Tensor x_ND;
  ExpertWeights weights;
  at::Tensor mask_QE;
};

// float32 and float64.
at::Tensor routed_experts_cpu_forward(const at::Tensor& x_ND, const ExpertWeights& weights,
                                      const ExpertSchedule& schedule);
RoutedExpertGradients routed_experts_cpu_backward(const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                                                  const ExpertWeights& weights,
                                                  const ExpertSchedule& schedule, int64_t num_segments,
                                                  NeededGradients needed);

// Any device; bfloat16 by grouped matrix products, other types by one product an expert.
at::Tensor routed_experts_grouped_forward(const at::Tensor& x_ND, const ExpertWeights& weights,
                                          const ExpertSchedule& schedule);
RoutedExpertGradients routed_experts_grouped_backward(const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                                                      const ExpertWeights& weights,
                                                      const ExpertSchedule& schedule, int64_t num_segments,
                                                      NeededGradients needed);

}  // namespace smoe
