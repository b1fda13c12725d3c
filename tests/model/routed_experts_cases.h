// Random inputs for tests of the routed experts, and their gradients.
#pragma once

#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "smoe/model/routed_experts.h"

namespace smoe::test {

struct CaseShape {
  int64_t num_tokens = 0;
  int64_t dim = 0;
  int64_t num_experts = 0;
  int64_t expert_dim = 0;
  int64_t k = 0;
  int64_t segment_length = 1;
};

// Arguments of routed_experts; every tensor is a leaf that requires its gradient.
struct Case {
  std::string description;
  at::Tensor x;
  ExpertWeights weights;
  at::Tensor mask;
  std::vector<TokenRange> segments;
};

inline at::Tensor leaf(const at::Tensor& values) { return values.detach().clone().requires_grad_(true); }

inline Case make_inputs(const CaseShape& shape, at::ScalarType type) {
  Case c;
  const auto options = at::TensorOptions().dtype(type);
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.dim));
  c.x = leaf(at::randn({shape.num_tokens, shape.dim}, options));
  c.weights.gate_EhD = leaf(at::randn({shape.num_experts, shape.expert_dim, shape.dim}, options) * scale);
  c.weights.up_EhD = leaf(at::randn({shape.num_experts, shape.expert_dim, shape.dim}, options) * scale);
  c.weights.down_EDh = leaf(at::randn({shape.num_experts, shape.dim, shape.expert_dim}, options) * scale);
  return c;
}

// Ones at k random experts of each segment.
inline Case make_case(const CaseShape& shape, uint64_t seed, at::ScalarType type) {
  at::manual_seed(seed);
  Case c = make_inputs(shape, type);
  for (int64_t begin = 0; begin < shape.num_tokens; begin += shape.segment_length) {
    c.segments.push_back({begin, std::min(begin + shape.segment_length, shape.num_tokens)});
  }
  const auto num_segments = static_cast<int64_t>(c.segments.size());
  const at::Tensor order =
      at::rand({num_segments, shape.num_experts}).argsort(int64_t{-1}).argsort(int64_t{-1});
  c.mask = leaf(order.lt(shape.k).to(type));
  return c;
}

// Everything random: sizes, ragged and empty segments, experts a segment, ones or weights as the mask.
inline Case random_case(uint64_t seed, at::ScalarType type) {
  at::manual_seed(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const CaseShape shape{
      .num_tokens = draw(0, 200), .dim = draw(1, 40), .num_experts = draw(1, 12), .expert_dim = draw(1, 20)};
  const int64_t max_length = draw(1, 60);
  Case c = make_inputs(shape, type);
  for (int64_t begin = 0; begin < shape.num_tokens;) {
    const int64_t end = std::min(begin + draw(0, max_length), shape.num_tokens);
    c.segments.push_back({begin, end});
    begin = end;
  }
  const auto num_segments = static_cast<int64_t>(c.segments.size());
  at::Tensor mask = at::rand({num_segments, shape.num_experts}).lt(at::rand({num_segments, 1})).to(type);
  if (draw(0, 1) == 1) {
    mask = mask * at::rand_like(mask);
  }
  c.mask = leaf(mask);
  c.description = fmt::format("seed {}: N {} D {} E {} h {} Q {}", seed, shape.num_tokens, shape.dim,
                              shape.num_experts, shape.expert_dim, num_segments);
  return c;
}

struct CaseGradients {
  at::Tensor x;
  at::Tensor gate;
  at::Tensor up;
  at::Tensor down;
  at::Tensor mask;
};

inline CaseGradients gradients(const at::Tensor& y, const Case& c, const at::Tensor& y_gradient) {
  const auto all = torch::autograd::grad(
      {y}, {c.x, c.weights.gate_EhD, c.weights.up_EhD, c.weights.down_EDh, c.mask}, {y_gradient});
  return {all[0], all[1], all[2], all[3], all[4]};
}

// Largest difference relative to the largest expected value (at least 1).
inline double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.sizes() != expected.sizes()) {
    return std::numeric_limits<double>::infinity();
  }
  if (expected.numel() == 0) {
    return 0;
  }
  const at::Tensor difference = (actual.to(at::kDouble) - expected.to(at::kDouble)).abs().max();
  return (difference / expected.to(at::kDouble).abs().max().clamp_min(1.0)).item<double>();
}

}  // namespace smoe::test
