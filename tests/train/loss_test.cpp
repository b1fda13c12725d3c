#include "smoe/train/loss.h"

#include <gtest/gtest.h>

#include <cmath>

namespace smoe {
namespace {

struct Case {
  at::Tensor hidden_ND, weight_VD, targets_N, weights_N;
};

Case make_case(at::ScalarType type, int64_t num_tokens = 23, int64_t vocab_size = 17) {
  at::manual_seed(3);
  Case c;
  c.hidden_ND = at::randn({num_tokens, 6}, at::kDouble).to(type).requires_grad_(true);
  c.weight_VD = at::randn({vocab_size, 6}, at::kDouble).to(type).requires_grad_(true);
  c.targets_N = at::randint(vocab_size, {num_tokens}, at::kLong);
  c.weights_N = at::rand({num_tokens}, at::kDouble).to(type);
  c.weights_N[4] = 0;
  c.weights_N[22] = 0;
  return c;
}

// Every step in plain autograd, with all logits at once.
at::Tensor plain_loss(const Case& c, double z_loss_weight) {
  const at::Tensor logits_NV = at::linear(c.hidden_ND, c.weight_VD);
  const at::Tensor cross_entropy_N = at::cross_entropy_loss(logits_NV, c.targets_N, {}, at::Reduction::None);
  return (c.weights_N * (cross_entropy_N + z_loss_weight * at::logsumexp(logits_NV, 1).square())).sum();
}

double max_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(HeadCrossEntropy, EqualsPlainCrossEntropyWithGradients) {
  for (const double z_loss_weight : {0.0, 0.01}) {
    const Case chunked = make_case(at::kDouble);
    const Case plain = make_case(at::kDouble);
    const HeadLoss head = head_cross_entropy(chunked.hidden_ND, chunked.weight_VD, chunked.targets_N,
                                             chunked.weights_N, {z_loss_weight, 5});
    head.weighted_loss.backward();
    const at::Tensor expected = plain_loss(plain, z_loss_weight);
    expected.backward();
    EXPECT_NEAR(head.weighted_loss.item<double>(), expected.item<double>(), 1e-12);
    EXPECT_LT(max_difference(chunked.hidden_ND.grad(), plain.hidden_ND.grad()), 1e-12);
    EXPECT_LT(max_difference(chunked.weight_VD.grad(), plain.weight_VD.grad()), 1e-12);
  }
}

TEST(HeadCrossEntropy, GradientsAgreeWithFiniteDifferences) {
  Case c = make_case(at::kDouble);
  const HeadLossOptions options{0.02, 7};
  const auto loss_of = [&] {
    return head_cross_entropy(c.hidden_ND, c.weight_VD, c.targets_N, c.weights_N, options).weighted_loss;
  };
  loss_of().backward();
  const double step = 1e-5;
  for (const at::Tensor& input : {c.hidden_ND, c.weight_VD}) {
    const at::Tensor gradient = input.grad().flatten();
    double* values = input.data_ptr<double>();
    for (int64_t i = 0; i < input.numel(); ++i) {
      const at::NoGradGuard no_gradient;
      const double original = values[i];
      values[i] = original + step;
      const double above = loss_of().item<double>();
      values[i] = original - step;
      const double below = loss_of().item<double>();
      values[i] = original;
      ASSERT_NEAR((above - below) / (2 * step), gradient[i].item<double>(), 1e-8) << "entry " << i;
    }
  }
}

TEST(HeadCrossEntropy, ChunkSizeChangesNothingBeyondRounding) {
  const Case whole = make_case(at::kFloat);
  const HeadLoss reference =
      head_cross_entropy(whole.hidden_ND, whole.weight_VD, whole.targets_N, whole.weights_N, {0.01, 1000});
  reference.weighted_loss.backward();
  for (const int64_t chunk : {1, 2, 21, 23}) {
    const Case c = make_case(at::kFloat);
    const HeadLoss head =
        head_cross_entropy(c.hidden_ND, c.weight_VD, c.targets_N, c.weights_N, {0.01, chunk});
    head.weighted_loss.backward();
    EXPECT_NEAR(head.weighted_loss.item<double>(), reference.weighted_loss.item<double>(), 1e-5);
    EXPECT_LT(max_difference(head.cross_entropy_N, reference.cross_entropy_N), 1e-5);
    EXPECT_LT(max_difference(c.weight_VD.grad(), whole.weight_VD.grad()), 1e-5);
  }
}

TEST(HeadCrossEntropy, TokensOfWeightZeroCostNothingAndMayHaveAnyTarget) {
  Case c = make_case(at::kDouble);
  c.targets_N[4] = -100;
  const HeadLoss head = head_cross_entropy(c.hidden_ND, c.weight_VD, c.targets_N, c.weights_N, {});
  head.weighted_loss.backward();
  EXPECT_EQ(head.cross_entropy_N[4].item<double>(), 0.0);
  EXPECT_GT(head.cross_entropy_N[5].item<double>(), 0.0);
  EXPECT_EQ(c.hidden_ND.grad()[4].abs().sum().item<double>(), 0.0);
}

TEST(HeadCrossEntropy, StaysFiniteForHugeLogits) {
  Case c = make_case(at::kFloat);
  const at::Tensor hidden_ND = (c.hidden_ND.detach() * 1e4).requires_grad_(true);
  const HeadLoss head = head_cross_entropy(hidden_ND, c.weight_VD, c.targets_N, c.weights_N, {});
  head.weighted_loss.backward();
  EXPECT_TRUE(std::isfinite(head.weighted_loss.item<double>()));
  EXPECT_TRUE(at::isfinite(hidden_ND.grad()).all().item<bool>());
}

TEST(HeadCrossEntropy, KeepsNoGradientsWhereNoneAreWanted) {
  const Case c = make_case(at::kFloat);
  const at::NoGradGuard no_gradient;
  const HeadLoss head = head_cross_entropy(c.hidden_ND, c.weight_VD, c.targets_N, c.weights_N, {});
  EXPECT_FALSE(head.weighted_loss.requires_grad());
}

// More tokens and words than a tile of the pass without gradients has, and neither a multiple of it.
TEST(HeadCrossEntropy, IsTheSameWithoutGradients) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Case c = make_case(type, 301, 2300);
    c.targets_N[0] = 1023;
    c.targets_N[1] = 1024;
    c.targets_N[2] = 2299;
    for (const double z_loss_weight : {0.0, 0.01}) {
      const auto loss_of = [&] {
        return head_cross_entropy(c.hidden_ND, c.weight_VD, c.targets_N, c.weights_N, {z_loss_weight, 64});
      };
      const HeadLoss with = loss_of();
      const at::NoGradGuard no_gradient;
      const HeadLoss without = loss_of();
      const double tolerance = type == at::kFloat ? 1e-5 : 1e-12;
      EXPECT_LT(max_difference(without.cross_entropy_N, with.cross_entropy_N), tolerance);
      EXPECT_NEAR(without.weighted_loss.item<double>() / with.weighted_loss.item<double>(), 1.0, tolerance);
      EXPECT_EQ(without.weighted_loss.scalar_type(), type);
    }
  }
}

TEST(HeadCrossEntropy, WithoutGradientsStaysFiniteForHugeLogits) {
  const Case c = make_case(at::kFloat, 23, 1100);
  const at::NoGradGuard no_gradient;
  const at::Tensor huge_ND = c.hidden_ND * 1e4;
  const HeadLoss head = head_cross_entropy(huge_ND, c.weight_VD, c.targets_N, c.weights_N, {});
  const at::Tensor logits_NV = at::linear(huge_ND, c.weight_VD);
  const at::Tensor expected_N = at::cross_entropy_loss(logits_NV, c.targets_N, {}, at::Reduction::None);
  const at::Tensor is_target_N = c.weights_N != 0;
  EXPECT_LT(max_difference(head.cross_entropy_N * is_target_N, expected_N * is_target_N), 0.1);  // of 1e5
}

TEST(HeadCrossEntropy, OfNoTokensIsZero) {
  Case c = make_case(at::kFloat);
  c.weights_N = at::zeros_like(c.weights_N);
  const at::NoGradGuard no_gradient;
  const HeadLoss head = head_cross_entropy(c.hidden_ND, c.weight_VD, c.targets_N, c.weights_N, {});
  EXPECT_EQ(head.weighted_loss.item<double>(), 0.0);
}

TEST(HeadCrossEntropy, ScalesGradientsByTheOuterDerivative) {
  const Case once = make_case(at::kDouble);
  const Case thrice = make_case(at::kDouble);
  head_cross_entropy(once.hidden_ND, once.weight_VD, once.targets_N, once.weights_N, {})
      .weighted_loss.backward();
  (3.0 * head_cross_entropy(thrice.hidden_ND, thrice.weight_VD, thrice.targets_N, thrice.weights_N, {})
             .weighted_loss)
      .backward();
  EXPECT_LT(max_difference(3.0 * once.weight_VD.grad(), thrice.weight_VD.grad()), 1e-12);
}

}  // namespace
}  // namespace smoe
