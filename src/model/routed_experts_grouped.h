// Routed experts as grouped matrix products in ATen operators: the path for GPUs, and for bfloat16 on a CPU.
// It computes outside autograd; the caller has checked shapes and dtypes and passes contiguous tensors.
//
// Shape legend: N tokens, D model width, E experts, h expert width, Q segments.
#pragma once

#include <ATen/ATen.h>

#include "routed_experts_paths.h"
#include "smoe/model/segment_layout.h"

namespace smoe {

// A mask with the set of its selected entries and the counts that the host knows.
struct GroupedSelection {
  at::Tensor mask_QE;      // float32 or the type of x
  at::Tensor selected_QE;  // bool, exactly the layout's counts of true entries a segment
  const SegmentLayout& layout;
};

// Any device. bfloat16 by at::_grouped_mm: it does not wait for the device, and D and h must be multiples of
// 8. Other types by one product an expert, whose sizes are read back from the device.
at::Tensor routed_experts_grouped_forward(const at::Tensor& x_ND, const ExpertWeights& weights,
                                          const GroupedSelection& selection);

// Gradients are undefined where not needed. The mask's is in float32 or x's type, 0 for unselected entries;
// those of the weights are float32 where several chunks add up.
RoutedExpertGradients routed_experts_grouped_backward(const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                                                      const ExpertWeights& weights,
                                                      const GroupedSelection& selection,
                                                      NeededGradients needed);

}  // namespace smoe
