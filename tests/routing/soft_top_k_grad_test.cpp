// The implicit gradient of soft_top_k against finite differences in float64.
#include <torch/csrc/autograd/autograd.h>

#include "routing_test_support.h"

namespace smoe::testing {
namespace {

constexpr SoftTopKKind kBothKinds[] = {SoftTopKKind::kEntropy, SoftTopKKind::kSigmoid};

at::Tensor gradient_of(const at::Tensor& scores_RE, const at::Tensor& weights_RE, double sum,
                       double temperature, SoftTopKKind kind) {
  const at::Tensor leaf_RE = scores_RE.detach().clone().requires_grad_(true);
  const at::Tensor lambda_RE = soft_top_k(leaf_RE, sums(leaf_RE.size(0), sum), temperature, kind);
  torch::autograd::backward({(lambda_RE * weights_RE).sum()}, {});
  return leaf_RE.grad();
}

// Central differences of sum(weights * lambda), all rows at once because rows do not see each other.
at::Tensor difference_quotients(const at::Tensor& scores_RE, const at::Tensor& weights_RE, double sum,
                                double temperature, SoftTopKKind kind) {
  const double step = 1e-6 * temperature;
  const at::Tensor sums_R = sums(scores_RE.size(0), sum);
  at::Tensor quotients_RE = at::empty_like(scores_RE);
  for (int64_t i = 0; i < scores_RE.size(1); ++i) {
    const auto value = [&](double offset) {
      at::Tensor moved_RE = scores_RE.clone();
      moved_RE.select(1, i).add_(offset);
      return (soft_top_k(moved_RE, sums_R, temperature, kind) * weights_RE).sum(1);
    };
    quotients_RE.select(1, i).copy_((value(step) - value(-step)) / (2 * step));
  }
  return quotients_RE;
}

TEST(SoftTopKGradient, EqualsFiniteDifferences) {
  const at::Tensor scores_RE = gaussian({40, 17}, 31, at::kDouble);
  const at::Tensor weights_RE = gaussian({40, 17}, 32, at::kDouble);
  for (const SoftTopKKind kind : kBothKinds) {
    for (const double temperature : {2.0, 1.0, 0.3, 0.1}) {
      for (const double sum : {0.3, 1.0, 5.0, 9.5, 16.0}) {
        const at::Tensor lambda_RE = soft_top_k(scores_RE, sums(40, sum), temperature, kind);
        // Rows with an entry at the kink have only one-sided derivatives.
        const at::Tensor kink_RE = at::logical_and(lambda_RE<1, lambda_RE> 1 - 1e-4);
        const at::Tensor smooth_R1 = kind == SoftTopKKind::kSigmoid ? at::ones({40, 1}, at::kBool)
                                                                    : at::logical_not(kink_RE.any(1, true));
        ASSERT_GT(smooth_R1.sum().item<int64_t>(), 30);
        const at::Tensor error_RE = gradient_of(scores_RE, weights_RE, sum, temperature, kind) -
                                    difference_quotients(scores_RE, weights_RE, sum, temperature, kind);
        EXPECT_LT((at::where(smooth_R1, error_RE, 0.0) * temperature).abs().max().item<double>(), 1e-7)
            << "temperature " << temperature << " sum " << sum;
      }
    }
  }
}

TEST(SoftTopKGradient, SumsToZeroInEachRow) {
  const at::Tensor scores_RE = gaussian({40, 17}, 33, at::kDouble);
  const at::Tensor weights_RE = gaussian({40, 17}, 34, at::kDouble);
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_LT(gradient_of(scores_RE, weights_RE, 5, 0.3, kind).sum(1).abs().max().item<double>(), 1e-12);
  }
}

TEST(SoftTopKGradient, IsZeroAtSaturatedEntriesOfTheEntropyKindOnly) {
  const at::Tensor scores_RE = row({4, 3.5, 0.3, 0.1, -0.2, -1}, at::kDouble);
  const at::Tensor weights_RE = row({1, -2, 3, -4, 5, -6}, at::kDouble);
  const at::Tensor entropy_RE = gradient_of(scores_RE, weights_RE, 3, 0.5, SoftTopKKind::kEntropy);
  const at::Tensor sigmoid_RE = gradient_of(scores_RE, weights_RE, 3, 0.5, SoftTopKKind::kSigmoid);
  EXPECT_TRUE(at::equal(entropy_RE.slice(1, 0, 2), at::zeros({1, 2}, at::kDouble)));
  EXPECT_TRUE((entropy_RE.slice(1, 2).abs() > 0.01).all().item<bool>());
  EXPECT_TRUE((sigmoid_RE.abs() > 1e-5).all().item<bool>());
}

TEST(SoftTopKGradient, OfFloat32MatchesFloat64) {
  const at::Tensor scores_RE = gaussian({300, 212}, 35);
  const at::Tensor weights_RE = gaussian({300, 212}, 36);
  for (const SoftTopKKind kind : kBothKinds) {
    for (const double temperature : {1.0, 0.3}) {
      const at::Tensor single_RE = gradient_of(scores_RE, weights_RE, 43, temperature, kind);
      const at::Tensor exact_RE =
          gradient_of(scores_RE.to(at::kDouble), weights_RE.to(at::kDouble), 43, temperature, kind);
      EXPECT_LT((single_RE.to(at::kDouble) - exact_RE).norm().item<double>(),
                1e-5 * exact_RE.norm().item<double>());
    }
  }
}

TEST(StraightThrough, GradientIsThatOfTheSoftMask) {
  const at::Tensor scores_RE = gaussian({40, 17}, 37);
  const at::Tensor weights_RE = gaussian({40, 17}, 38);
  const at::Tensor leaf_RE = scores_RE.clone().requires_grad_(true);
  const at::Tensor hard_RE = hard_top_k(leaf_RE, counts(40, 5));
  const at::Tensor mask_RE = straight_through(hard_RE, soft_top_k(leaf_RE, sums(40, 5), 1.0));
  torch::autograd::backward({(mask_RE * weights_RE).sum()}, {});
  EXPECT_TRUE(at::equal(leaf_RE.grad(), gradient_of(scores_RE, weights_RE, 5, 1.0, SoftTopKKind::kEntropy)));
}

TEST(StraightThrough, ValueIsTheHardMaskBitForBit) {
  // Soft values for which hard + (soft - soft) would round.
  const at::Tensor hard_RE = hard_top_k(gaussian({500, 212}, 39), counts(500, 43));
  const at::Tensor soft_RE = uniform({500, 212}, 40).requires_grad_(true);
  const at::Tensor mask_RE = straight_through(hard_RE, soft_RE);
  EXPECT_TRUE(mask_RE.requires_grad());
  EXPECT_TRUE(at::equal(mask_RE, hard_RE));
  EXPECT_THROW(straight_through(hard_RE, soft_RE.slice(0, 0, 3)), std::logic_error);
}

}  // namespace
}  // namespace smoe::testing
