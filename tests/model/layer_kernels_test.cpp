// The fused CPU loops of the layers against compositions of LibTorch's operators, values and gradients.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "model/causal_attention.h"
#include "model/projections.h"
#include "model/residual_norm.h"

namespace smoe {
namespace {

using torch::autograd::variable_list;

// Largest difference relative to the largest value of `expected`.
double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  const double scale = std::max(1e-3, expected.abs().max().item<double>());
  return (found - expected).abs().max().item<double>() / scale;
}

// Both functions of the same inputs must give the same outputs and gradients.
void expect_same(const std::function<variable_list(const variable_list&)>& fused,
                 const std::function<variable_list(const variable_list&)>& stock, const variable_list& values,
                 double tolerance) {
  variable_list inputs, copies;
  for (const at::Tensor& value : values) {
    inputs.push_back(value.clone().requires_grad_(true));
    copies.push_back(value.clone().requires_grad_(true));
  }
  const variable_list found = fused(inputs);
  const variable_list expected = stock(copies);
  ASSERT_EQ(found.size(), expected.size());
  variable_list weights;
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_LT(relative_error(found[i], expected[i]), tolerance) << "output " << i;
    weights.push_back(at::randn_like(expected[i]));
  }
  const variable_list found_gradients = torch::autograd::grad(found, inputs, weights);
  const variable_list expected_gradients = torch::autograd::grad(expected, copies, weights);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_LT(relative_error(found_gradients[i], expected_gradients[i]), tolerance) << "gradient " << i;
  }
}

struct AttentionCase {
  int64_t rows, tokens;
  HeadCounts heads;
  at::ScalarType type;
};

class CausalAttention : public ::testing::TestWithParam<AttentionCase> {};

RotaryTable random_angles(int64_t rows, int64_t tokens, int64_t half, at::ScalarType type) {
  const at::Tensor angles = at::randn({rows, 1, tokens, half}, at::kDouble);
  return {angles.cos().to(type), angles.sin().to(type)};
}

at::Tensor stock_attention(const variable_list& qkv, const RotaryTable& table, const HeadCounts& heads) {
  const auto split = [&](const at::Tensor& x, int64_t count) {
    return x.view({x.size(0), x.size(1), count, heads.head_dim}).transpose(1, 2);
  };
  const auto rotate = [&](const at::Tensor& x) {
    const auto halves = x.chunk(2, -1);
    return at::cat(
        {halves[0] * table.cos - halves[1] * table.sin, halves[1] * table.cos + halves[0] * table.sin}, -1);
  };
  const int64_t group = heads.num_heads / heads.num_kv_heads;
  const at::Tensor q = rotate(split(qkv[0], heads.num_heads));
  const at::Tensor k = rotate(split(qkv[1], heads.num_kv_heads)).repeat_interleave(group, 1);
  const at::Tensor v = split(qkv[2], heads.num_kv_heads).repeat_interleave(group, 1);
  const int64_t tokens = q.size(2);
  const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(double(heads.head_dim));
  const at::Tensor above = at::ones({tokens, tokens}, at::kBool).triu(1);
  const at::Tensor probabilities = at::softmax(scores.masked_fill(above, -INFINITY), -1);
  return at::matmul(probabilities, v).transpose(1, 2).flatten(2);
}

TEST_P(CausalAttention, EqualsMaskedSoftmaxWithGradients) {
  const auto& [rows, tokens, heads, type] = GetParam();
  at::manual_seed(tokens);
  // Large scores: the running maximum has to move.
  const variable_list qkv = {3 * at::randn({rows, tokens, heads.num_heads * heads.head_dim}, type),
                             3 * at::randn({rows, tokens, heads.num_kv_heads * heads.head_dim}, type),
                             at::randn({rows, tokens, heads.num_kv_heads * heads.head_dim}, type)};
  // One table for all rows, and one a row.
  for (const int64_t tables : {int64_t{1}, rows}) {
    const RotaryTable table = random_angles(tables, tokens, heads.head_dim / 2, type);
    expect_same(
        [&](const variable_list& x) {
          return variable_list{causal_attention(x[0], x[1], x[2], table, heads)};
        },
        [&](const variable_list& x) { return variable_list{stock_attention(x, table, heads)}; }, qkv,
        type == at::kDouble ? 1e-11 : 3e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CausalAttention,
                         ::testing::Values(AttentionCase{2, 1, {2, 2, 6}, at::kDouble},
                                           AttentionCase{3, 7, {4, 2, 6}, at::kDouble},
                                           AttentionCase{1, 64, {1, 1, 8}, at::kDouble},
                                           AttentionCase{2, 65, {3, 1, 4}, at::kDouble},
                                           AttentionCase{1, 515, {2, 2, 4}, at::kDouble},
                                           AttentionCase{1, 1100, {2, 1, 64}, at::kFloat}));

TEST(CausalAttention, NeverLooksAheadBitForBit) {
  at::manual_seed(1);
  const HeadCounts heads{2, 2, 8};
  const RotaryTable table = random_angles(1, 100, 4, at::kFloat);
  const at::Tensor x = at::randn({1, 100, 16});
  const at::Tensor before = causal_attention(x, x, x, table, heads);
  at::Tensor changed = x.clone();
  changed.narrow(1, 70, 30).add_(1.0);
  const at::Tensor after = causal_attention(changed, changed, changed, table, heads);
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 70), after.narrow(1, 0, 70)));
}

variable_list stock_norm(const variable_list& x) {
  const at::Tensor sum = x.size() == 3 ? x[0] + x[1] : x[0];
  const at::Tensor& gain = x.back();
  return {sum, at::rms_norm(sum, gain.sizes(), gain, 1e-5)};
}
variable_list fused_norm(const variable_list& x) {
  const ResidualNorm result = residual_norm(x[0], x.size() == 3 ? x[1] : at::Tensor(), x.back(), 1e-5);
  return {result.sum, result.normed};
}

TEST(ResidualNorm, EqualsAdditionAndNormWithGradients) {
  at::manual_seed(2);
  for (const int64_t rows : {1, 3, 300}) {
    const variable_list inputs = {at::randn({rows, 2, 33}, at::kDouble),
                                  at::randn({rows, 2, 33}, at::kDouble), at::randn({33}, at::kDouble)};
    expect_same(fused_norm, stock_norm, inputs, 1e-12);
    expect_same(fused_norm, stock_norm, {inputs[0], inputs[2]}, 1e-12);
  }
}

TEST(ResidualNorm, StaysCloseInFloat32) {
  at::manual_seed(3);
  expect_same(fused_norm, stock_norm, {at::randn({500, 256}), at::randn({500, 256}), at::randn({256})}, 1e-5);
}

TEST(ResidualNorm, AnOutputWithoutAGradientCountsAsZero) {
  at::manual_seed(4);
  const at::Tensor h = at::randn({5, 8}, at::kDouble).requires_grad_(true);
  const at::Tensor gain = at::randn({8}, at::kDouble).requires_grad_(true);
  const at::Tensor stock_h = h.detach().clone().requires_grad_(true);
  at::rms_norm(stock_h, gain.sizes(), gain.detach(), 1e-5).sum().backward();
  residual_norm(h, {}, gain, 1e-5).normed.sum().backward();
  EXPECT_LT(relative_error(h.grad(), stock_h.grad()), 1e-12);
  const at::Tensor only_sum = at::randn({5, 8}, at::kDouble).requires_grad_(true);
  residual_norm(h.detach(), only_sum, gain.detach(), 1e-5).sum.sum().backward();
  EXPECT_TRUE(at::equal(only_sum.grad(), at::ones_like(only_sum)));
}

TEST(Projections, EqualLinearMapsWithGradients) {
  at::manual_seed(5);
  expect_same(
      [](const variable_list& x) {
        return variable_list(project(x[0], {x[1], x[2], x[3]}));
      },
      [](const variable_list& x) {
        return variable_list{at::linear(x[0], x[1]), at::linear(x[0], x[2]), at::linear(x[0], x[3])};
      },
      {at::randn({2, 5, 7}, at::kDouble), at::randn({4, 7}, at::kDouble), at::randn({3, 7}, at::kDouble),
       at::randn({9, 7}, at::kDouble)},
      1e-12);
}

TEST(FusedSwiglu, EqualsTheCompositionWithGradients) {
  at::manual_seed(6);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    expect_same(
        [](const variable_list& x) {
          return variable_list{fused_swiglu(x[0], {x[1], x[2], x[3]})};
        },
        [](const variable_list& x) {
          const at::Tensor hidden = at::silu(at::linear(x[0], x[1])) * at::linear(x[0], x[2]);
          return variable_list{at::linear(hidden, x[3])};
        },
        {at::randn({2, 50, 7}, type), at::randn({40, 7}, type), at::randn({40, 7}, type),
         at::randn({7, 40}, type)},
        type == at::kDouble ? 1e-12 : 1e-5);
  }
}

TEST(FusedSwiglu, GradientsCanBeTakenTwiceFromAKeptGraph) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({3, 4}, at::kDouble).requires_grad_(true);
  const SwigluWeights weights{at::randn({5, 4}, at::kDouble), at::randn({5, 4}, at::kDouble),
                              at::randn({4, 5}, at::kDouble)};
  const at::Tensor y = fused_swiglu(x, weights).sum();
  const at::Tensor first = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true)[0];
  EXPECT_TRUE(at::equal(first, torch::autograd::grad({y}, {x})[0]));
}

}  // namespace
}  // namespace smoe
