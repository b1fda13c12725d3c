// Inputs and small comparisons that the routing tests share.
//
// Shape legend: R rows, E experts.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "smoe/core/error.h"
#include "smoe/routing/soft_top_k.h"

namespace smoe::testing {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline at::Tensor gaussian(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(dtype));
}

inline at::Tensor uniform(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(dtype));
}

inline at::Tensor row(const std::vector<double>& values, at::ScalarType dtype = at::kFloat) {
  return at::tensor(values, at::TensorOptions(at::kDouble)).to(dtype).unsqueeze(0);
}

// The same sum, or the same count, for every row.
inline at::Tensor sums(int64_t num_rows, double sum) { return at::full({num_rows}, sum, at::kDouble); }
inline at::Tensor counts(int64_t num_rows, int64_t count) { return at::full({num_rows}, count, at::kLong); }

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// The message of the NumericError that `action` throws; empty if it does not.
template <class Action>
std::string numeric_error(const Action& action) {
  try {
    action();
  } catch (const NumericError& error) {
    return error.what();
  }
  return "";
}

}  // namespace smoe::testing
