// Skipping where there is no GPU, and comparing what one computes with the CPU.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace smoe::testing {

inline const at::Device kGpu{at::kCUDA, 0};

inline std::string why_no_gpu() {
#ifdef SMOE_CUDA
  return "no CUDA device is usable on this machine";
#else
  return "this build is not linked with CUDA: build the preset `cuda` (tools/gpu_check.sh does)";
#endif
}

// Largest difference relative to the largest expected value.
inline double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor a = actual.detach().to(at::kCPU, at::kDouble);
  const at::Tensor b = expected.detach().to(at::kCPU, at::kDouble);
  return ((a - b).abs().max() / b.abs().max().clamp_min(1e-12)).item<double>();
}

}  // namespace smoe::testing

// First line of a test that needs a GPU.
#define SMOE_NEEDS_GPU() \
  if (!at::hasCUDA()) GTEST_SKIP() << ::smoe::testing::why_no_gpu()
