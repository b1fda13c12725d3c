#include "smoe/model/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

namespace smoe {
namespace {

constexpr auto kDouble = at::kDouble;

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({3, 5, 16}, kDouble);
  const at::Tensor gain = at::randn({16}, kDouble);
  const at::Tensor expected = gain * x / at::sqrt(x.square().mean(-1, true) + 1e-5);
  EXPECT_TRUE(at::allclose(rms_norm(x, gain, 1e-5), expected, 1e-12, 1e-12));
}

TEST(Swiglu, IsDownOfSiluGateTimesUp) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({4, 6}, kDouble);
  const SwigluWeights weights{at::randn({10, 6}, kDouble), at::randn({10, 6}, kDouble),
                              at::randn({6, 10}, kDouble)};
  const at::Tensor gate = x.matmul(weights.gate_FD.t());
  const at::Tensor hidden = gate / (1 + at::exp(-gate)) * x.matmul(weights.up_FD.t());
  EXPECT_TRUE(at::allclose(swiglu(x, weights), hidden.matmul(weights.down_DF.t()), 1e-12, 1e-12));
}

TEST(Rotary, MultipliesPairsByComplexPhases) {
  at::manual_seed(3);
  const int64_t head_dim = 8;
  const double theta = 100.0;
  const at::Tensor x = at::randn({1, 2, 5, head_dim}, kDouble);
  const at::Tensor positions = at::tensor({0, 1, 2, 7, 100}, at::kLong);
  const at::Tensor rotated = apply_rotary(x, rotary_table(positions, head_dim, theta, kDouble));
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t token = 0; token < 5; ++token) {
      for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
        const auto at_index = [&](const at::Tensor& t, int64_t i) {
          return t[0][head][token][i].item<double>();
        };
        const double angle =
            positions[token].item<double>() *
            std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
        const std::complex<double> expected =
            std::complex<double>(at_index(x, pair), at_index(x, pair + head_dim / 2)) *
            std::polar(1.0, angle);
        EXPECT_NEAR(at_index(rotated, pair), expected.real(), 1e-12);
        EXPECT_NEAR(at_index(rotated, pair + head_dim / 2), expected.imag(), 1e-12);
      }
    }
  }
}

TEST(Rotary, BackwardIsTheInverseRotation) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({2, 1, 3, 4}, kDouble).requires_grad_(true);
  const RotaryTable table = rotary_table(at::arange(3, at::kLong), 4, 50.0, kDouble);
  const at::Tensor weight = at::randn({2, 1, 3, 4}, kDouble);
  (apply_rotary(x, table) * weight).sum().backward();
  const at::Tensor gradient = x.grad();
  const double step = 1e-6;
  for (int64_t index = 0; index < x.numel(); ++index) {
    at::Tensor plus = x.detach().clone(), minus = x.detach().clone();
    plus.view(-1)[index] += step;
    minus.view(-1)[index] -= step;
    const double numeric =
        ((apply_rotary(plus, table) - apply_rotary(minus, table)) * weight).sum().item<double>() / (2 * step);
    EXPECT_NEAR(gradient.reshape(-1)[index].item<double>(), numeric, 1e-8);
  }
}

// Attention written out per head and query, with the grouped key/value heads indexed by hand.
at::Tensor naive_attention(const at::Tensor& x, const AttentionWeights& weights, const ModelConfig& config,
                           const RotaryTable& table, const at::Tensor& mask_BTT) {
  const int64_t rows = x.size(0), tokens = x.size(1), head_dim = config.head_dim;
  at::Tensor mixed = at::zeros({rows, tokens, config.num_heads * head_dim}, x.options());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < config.num_heads; ++head) {
      const int64_t kv_head = head / (config.num_heads / config.num_kv_heads);
      const auto project = [&](const at::Tensor& weight, int64_t index) {
        return x[row].matmul(weight.narrow(0, index * head_dim, head_dim).t());
      };
      const auto prepare = [&](const at::Tensor& values, const at::Tensor& gain) {
        const at::Tensor normed =
            gain.defined() ? values * at::rsqrt(values.square().mean(-1, true) + config.norm_eps) * gain
                           : values;
        return apply_rotary(normed.view({1, 1, tokens, head_dim}), table)[0][0];
      };
      const at::Tensor q = prepare(project(weights.q_proj, head), weights.q_norm);
      const at::Tensor k = prepare(project(weights.k_proj, kv_head), weights.k_norm);
      const at::Tensor v = project(weights.v_proj, kv_head);
      for (int64_t query = 0; query < tokens; ++query) {
        at::Tensor scores = k.matmul(q[query]) / std::sqrt(static_cast<double>(head_dim));
        scores.masked_fill_(mask_BTT[row][query].logical_not(), -INFINITY);
        mixed[row][query].narrow(0, head * head_dim, head_dim).copy_(at::softmax(scores, 0).matmul(v));
      }
    }
  }
  return mixed.matmul(weights.o_proj.t());
}

class AttentionTest : public ::testing::TestWithParam<bool> {};

TEST_P(AttentionTest, EqualsTheNaiveForm) {
  at::manual_seed(5);
  ModelConfig config;
  config.dim = 12;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  AttentionWeights weights{at::randn({24, 12}, kDouble),
                           at::randn({12, 12}, kDouble),
                           at::randn({12, 12}, kDouble),
                           at::randn({12, 24}, kDouble),
                           {},
                           {}};
  if (GetParam()) {
    weights.q_norm = at::randn({6}, kDouble);
    weights.k_norm = at::randn({6}, kDouble);
  }
  const at::Tensor x = at::randn({2, 7, 12}, kDouble);
  const RotaryTable table = rotary_table(at::arange(7, at::kLong), 6, 10.0, kDouble);
  const at::Tensor causal = at::ones({2, 7, 7}, at::kBool).tril();
  EXPECT_TRUE(at::allclose(attention(x, weights, config, table, {}),
                           naive_attention(x, weights, config, table, causal), 1e-10, 1e-10));
  const at::Tensor documents = at::tensor({0, 0, 0, 1, 1, 2, 2, 5, 5, 5, 5, 5, 6, 6}, at::kLong).view({2, 7});
  const at::Tensor mask = document_causal_mask(documents);
  EXPECT_TRUE(at::allclose(attention(x, weights, config, table, mask),
                           naive_attention(x, weights, config, table, mask), 1e-10, 1e-10));
}
INSTANTIATE_TEST_SUITE_P(QkNorm, AttentionTest, ::testing::Bool());

TEST(DocumentMask, AllowsEarlierTokensOfTheSameDocumentOnly) {
  const at::Tensor mask = document_causal_mask(at::tensor({3, 3, 4}, at::kLong).view({1, 3}));
  const at::Tensor expected =
      at::tensor({1, 0, 0, 1, 1, 0, 0, 0, 1}, at::kLong).view({1, 3, 3}).to(at::kBool);
  EXPECT_TRUE(at::equal(mask, expected));
}

TEST(ScaleGradient, KeepsTheValueAndScalesTheGradient) {
  const at::Tensor x = at::ones({3}, kDouble).requires_grad_(true);
  const at::Tensor y = scale_gradient(x, 0.25);
  EXPECT_TRUE(at::equal(y, x));
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 0.25, kDouble)));
  EXPECT_FALSE(scale_gradient(x, 0.0).requires_grad());
}

}  // namespace
}  // namespace smoe
