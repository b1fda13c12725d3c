// Linear maps of one input and the SwiGLU on top of them, each as one operation of autograd: gradients that
// meet in the input are added up inside the matrix products, and nothing is kept that the backward can form
// from what it reads anyway.
//
// Shape legend: D input width, F output or hidden width.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "smoe/model/layers.h"

namespace smoe {

// x [..., D] times the transpose of every weight [F, D]. CPU, float32 or float64.
std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<at::Tensor>& weights_FD);

// down( silu(gate x) * (up x) ), keeping x, gate x and up x. CPU, float32 or float64.
at::Tensor fused_swiglu(const at::Tensor& x, const SwigluWeights& weights);

// Whether the operations of this library's own loops take such tensors.
bool runs_fused(const at::Tensor& x, const at::Tensor& weight);

}  // namespace smoe
