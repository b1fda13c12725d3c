// The one hot operation: routed experts under a plan, summed by the mask.
//
//   y_t = sum over experts e of  mask[q(t), e] * down_e( silu(gate_e x_t) * (up_e x_t) )
//
// A Stepped MoE passes a mask of exact zeros and ones (outputs are summed unweighted); a vanilla MoE
// passes every token as its own segment with its routing weights as the mask.
//
// Shape legend: N tokens, D model width, E experts, h expert width, Q segments.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "smoe/routing/routing_config.h"

namespace smoe {

struct ExpertWeights {
  at::Tensor gate_EhD;
  at::Tensor up_EhD;
  at::Tensor down_EDh;
};

// Rows [begin, end) of the flattened tokens form segment q; the ranges tile [0, N) in order.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// In all functions `x_ND` and the weights have one dtype, the mask has the same one or float32 and gets
// its gradient in its own. Tensors may be strided, segments may be empty, N and Q may be 0. Shapes, dtypes
// and devices that do not fit throw std::logic_error naming the argument.

// The obvious form: every expert on every token, times the mask. Differentiable in everything; the
// mask's gradient reaches all experts. The reference of the tests, and the path of mask_gradient: all.
at::Tensor routed_experts_masked_dense(const at::Tensor& x_ND, const ExpertWeights& weights,
                                       const at::Tensor& mask_QE, const std::vector<TokenRange>& segments);

// Computes only experts whose mask entry is not 0, forward and backward; entries that are 0 get a zero mask
// gradient. Keeps its inputs for the backward. The activations before the SwiGLU are kept too where they take
// at most `max_kept_bytes` (CPU only), and else computed a second time: 2 of 11 products more, but memory
// that does not grow with the number of active experts. The result is the same bit for bit. Differentiable
// once.
//
// CPU in float32 and float64: fused loops; the same result for the same number of threads, bit for bit. CUDA,
// and bfloat16 anywhere (D and h multiples of 8): grouped matrix products, after the counts of the mask have
// come to the host. Rows are added in a fixed order there too.
inline constexpr int64_t kMaxKeptExpertBytes = int64_t{24} << 20;
at::Tensor routed_experts_sparse(const at::Tensor& x_ND, const ExpertWeights& weights,
                                 const at::Tensor& mask_QE, const std::vector<TokenRange>& segments,
                                 int64_t max_kept_bytes = kMaxKeptExpertBytes);

// The grouped products of routed_experts_sparse where the host knows the counts before: `selected_QE` (bool)
// is the set of entries to compute, exactly as many a segment as the layout says (unchecked: that would mean
// to wait for the device). In bfloat16 nothing waits for the device.
class SegmentLayout;
using SegmentLayoutPointer = c10::intrusive_ptr<SegmentLayout>;
at::Tensor routed_experts_grouped(const at::Tensor& x_ND, const ExpertWeights& weights,
                                  const at::Tensor& mask_QE, const at::Tensor& selected_QE,
                                  const SegmentLayoutPointer& layout);

// Chooses between sparse and dense by `gradient`.
at::Tensor routed_experts(const at::Tensor& x_ND, const ExpertWeights& weights, const at::Tensor& mask_QE,
                          const std::vector<TokenRange>& segments, MaskGradient gradient);

}  // namespace smoe
