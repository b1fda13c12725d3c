// The path for CUDA is made of ATen operators, so its arithmetic can be checked on the CPU; the last test
// runs the public function on a device where there is one.
#include <gtest/gtest.h>

#include "model/routed_experts_paths.h"
#include "routed_experts_cases.h"

namespace smoe {
namespace {

using test::Case;
using test::make_case;
using test::relative_error;

ExpertSchedule schedule_of(const Case& c) {
  at::Tensor ranges = at::empty({static_cast<int64_t>(c.segments.size()), 2}, at::kLong);
  for (size_t q = 0; q < c.segments.size(); ++q) {
    ranges[static_cast<int64_t>(q)][0] = c.segments[q].begin;
    ranges[static_cast<int64_t>(q)][1] = c.segments[q].end;
  }
  return make_expert_schedule(c.mask, ranges);
}

// `expected` is computed by the reference in the type of `exact`, the grouped path runs in the type of `c`.
void expect_grouped_equals_dense(const Case& c, const Case& exact, double tolerance) {
  at::NoGradGuard no_grad;
  const ExpertSchedule schedule = schedule_of(c);
  const at::Tensor y_gradient = at::randn_like(exact.x);
  const auto num_segments = static_cast<int64_t>(c.segments.size());
  const at::Tensor y = routed_experts_grouped_forward(c.x, c.weights, schedule);
  const auto actual = routed_experts_grouped_backward(y_gradient.to(c.x.scalar_type()), c.x, c.weights,
                                                      schedule, num_segments, {});
  at::AutoGradMode with_grad(true);
  const at::Tensor reference =
      routed_experts_masked_dense(exact.x, exact.weights, exact.mask, exact.segments);
  const auto expected = test::gradients(reference, exact, y_gradient);
  EXPECT_LT(relative_error(y, reference), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.x_ND, expected.x), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.weights.gate_EhD, expected.gate), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.weights.up_EhD, expected.up), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.weights.down_EDh, expected.down), tolerance) << c.description;
  const at::Tensor selected = c.mask.detach().ne(0);
  EXPECT_LT(relative_error(actual.mask_QE, expected.mask * selected), tolerance) << c.description;
}

TEST(RoutedExpertsGrouped, EqualsDenseOnRandomShapesInFloat64) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Case c = test::random_case(seed, at::kDouble);
    expect_grouped_equals_dense(c, c, 1e-12);
  }
}

TEST(RoutedExpertsGrouped, Bfloat16StaysCloseToFloat32IncludingExpertsWithoutTokens) {
  Case exact = make_case(
      {.num_tokens = 96, .dim = 32, .num_experts = 6, .expert_dim = 16, .k = 2, .segment_length = 16}, 3,
      at::kFloat);
  exact.mask = test::leaf(exact.mask.detach().index_fill(1, at::tensor({1, 5}, at::kLong), 0));
  const auto rounded = [](at::Tensor& values) {
    const at::Tensor low = values.detach().to(at::kBFloat16);
    values = test::leaf(low.to(at::kFloat));
    return low;
  };
  Case c = exact;
  c.x = rounded(exact.x);
  c.weights = {rounded(exact.weights.gate_EhD), rounded(exact.weights.up_EhD),
               rounded(exact.weights.down_EDh)};
  expect_grouped_equals_dense(c, exact, 2e-2);
}

TEST(RoutedExpertsGrouped, CudaEqualsTheCpu) {
  if (!at::hasCUDA()) {
    GTEST_SKIP() << "needs a CUDA device and a build with SMOE_CUDA=ON";
  }
  const Case c = make_case(
      {.num_tokens = 512, .dim = 64, .num_experts = 8, .expert_dim = 32, .k = 3, .segment_length = 32}, 5,
      at::kFloat);
  Case on_device = c;
  const auto move = [](const at::Tensor& values) { return test::leaf(values.to(at::kCUDA)); };
  on_device.x = move(c.x);
  on_device.weights = {move(c.weights.gate_EhD), move(c.weights.up_EhD), move(c.weights.down_EDh)};
  on_device.mask = move(c.mask);
  const at::Tensor y_gradient = at::randn_like(c.x);
  const at::Tensor y = routed_experts_sparse(c.x, c.weights, c.mask, c.segments);
  const at::Tensor device_y =
      routed_experts_sparse(on_device.x, on_device.weights, on_device.mask, c.segments);
  EXPECT_LT(relative_error(device_y.cpu(), y), 1e-4);
  const auto expected = test::gradients(y, c, y_gradient);
  const auto actual = test::gradients(device_y, on_device, y_gradient.to(at::kCUDA));
  EXPECT_LT(relative_error(actual.x.cpu(), expected.x), 1e-4);
  EXPECT_LT(relative_error(actual.gate.cpu(), expected.gate), 1e-4);
  EXPECT_LT(relative_error(actual.down.cpu(), expected.down), 1e-4);
  EXPECT_LT(relative_error(actual.mask.cpu(), expected.mask), 1e-4);
}

}  // namespace
}  // namespace smoe
