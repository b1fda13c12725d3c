#include "model/recompute.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "memory_meter.h"
#include "smoe/core/error.h"
#include "smoe/model/token_router.h"

namespace smoe {
namespace {

using torch::autograd::variable_list;

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).set_requires_grad(true); }

// Two outputs that count and one that does not: an integer, as the counts of a router.
RecomputedBody make_body(const at::Tensor& weight, int* num_calls = nullptr) {
  return [weight, num_calls](const variable_list& inputs) {
    if (num_calls != nullptr) ++*num_calls;
    const at::Tensor y = at::silu(at::matmul(inputs[0], weight)) * inputs[1];
    return variable_list{y, y.square().sum(0), y.gt(0).sum(0)};
  };
}

TEST(Recompute, GivesTheGradientsOfThePlainCallBitForBit) {
  at::manual_seed(3);
  const at::Tensor x = leaf({5, 4}), scale = leaf({5, 6}), weight = leaf({4, 6});
  const RecomputedBody body = make_body(weight);
  const auto gradients = [&](const variable_list& outputs) {
    const at::Tensor loss = outputs[0].sum() + 3 * outputs[1].pow(2).sum();
    return torch::autograd::grad({loss}, {x, scale, weight});
  };
  const variable_list plain_outputs = body({x, scale});
  const variable_list outputs = recompute_in_backward(body, {x, scale}, {weight});
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(at::equal(outputs[i], plain_outputs[i]));
  EXPECT_FALSE(outputs[2].requires_grad());
  const variable_list expected = gradients(plain_outputs);
  const variable_list found = gradients(outputs);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
}

TEST(Recompute, LeavesOutWhatNeedsNoGradient) {
  const at::Tensor weight = leaf({4, 6}), unused = leaf({2});
  const at::Tensor x = at::randn({5, 4}, at::kDouble), scale = at::randn({5, 6}, at::kDouble);
  const variable_list outputs = recompute_in_backward(make_body(weight), {x, scale}, {weight, unused});
  outputs[1].sum().backward();  // outputs[0] takes no part
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_FALSE(unused.grad().defined());
  EXPECT_FALSE(x.grad().defined());
}

TEST(Recompute, IsAPlainCallWithoutGradients) {
  const at::NoGradGuard no_gradient;
  int num_calls = 0;
  const at::Tensor weight = leaf({4, 6});
  const variable_list outputs =
      recompute_in_backward(make_body(weight, &num_calls), {leaf({5, 4}), leaf({5, 6})}, {weight});
  EXPECT_FALSE(outputs[0].requires_grad());
  EXPECT_EQ(num_calls, 1);
}

TEST(Recompute, RunsTheBodyTwice) {
  int num_calls = 0;
  const at::Tensor weight = leaf({4, 6});
  const variable_list outputs =
      recompute_in_backward(make_body(weight, &num_calls), {leaf({5, 4}), leaf({5, 6})}, {weight});
  outputs[0].sum().backward();
  EXPECT_EQ(num_calls, 2);
}

TEST(Recompute, KeepsNothingThatTheBodyMakes) {
  const at::Tensor weight = leaf({64, 64});
  const at::Tensor x = leaf({512, 64});
  const RecomputedBody body = [&](const variable_list& inputs) {
    at::Tensor y = inputs[0];
    for (int i = 0; i < 20; ++i) y = at::silu(at::matmul(y, weight));
    return variable_list{y};
  };
  const int64_t one_tensor = 512 * 64 * 8;
  testing::MemoryMeter kept_meter;
  const at::Tensor kept = body({x})[0];
  EXPECT_GE(kept_meter.peak_bytes(), 39 * one_tensor);
  testing::MemoryMeter meter;
  const at::Tensor recomputed = recompute_in_backward(body, {x}, {weight})[0];
  EXPECT_LE(meter.peak_bytes(), 4 * one_tensor);
}

TEST(Recompute, RefusesASecondDerivative) {
  const at::Tensor weight = leaf({4, 6}), x = leaf({5, 4}), scale = leaf({5, 6});
  const variable_list outputs = recompute_in_backward(make_body(weight), {x, scale}, {weight});
  EXPECT_THROW(torch::autograd::grad({outputs[0].sum()}, {x}, {}, true, /*create_graph=*/true), NumericError);
}

TEST(TokenRouter, RepeatsAnEarlierChoiceWhateverTheProbabilities) {
  at::manual_seed(5);
  const at::Tensor router_ED = at::randn({8, 6});
  const at::Tensor count_N = at::full({10}, 3, at::kLong);
  const TokenRouting first = route_tokens(at::randn({10, 6}), router_ED, count_N, {});
  const at::Tensor other_ND = at::randn({10, 6});
  const TokenRouting free = route_tokens(other_ND, router_ED, count_N, {});
  ASSERT_FALSE(at::equal(free.selected_NE, first.selected_NE));
  const TokenRouting bound = route_tokens(other_ND, router_ED, count_N, {}, first.selected_NE);
  EXPECT_TRUE(at::equal(bound.weight_NE.ne(0), first.selected_NE));
  EXPECT_TRUE(at::equal(bound.selected_count_E, first.selected_count_E));
}

}  // namespace
}  // namespace smoe
