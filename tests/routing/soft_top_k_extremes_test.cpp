// What soft_top_k does at the edges of its domain, and what it refuses.
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include "routing_test_support.h"

namespace smoe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr SoftTopKKind kBothKinds[] = {SoftTopKKind::kEntropy, SoftTopKKind::kSigmoid};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Gradient of sum(weights * soft_top_k(scores)) with uneven weights.
at::Tensor score_gradient(const at::Tensor& scores_RE, double sum, double temperature, SoftTopKKind kind) {
  const at::Tensor leaf_RE = scores_RE.detach().clone().requires_grad_(true);
  const at::Tensor lambda_RE = soft_top_k(leaf_RE, sums(leaf_RE.size(0), sum), temperature, kind);
  const at::Tensor weights_E = at::arange(1, scores_RE.size(1) + 1, scores_RE.options());
  torch::autograd::backward({(lambda_RE * weights_E).sum()}, {});
  return leaf_RE.grad();
}

class SoftTopKExtremes : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, SoftTopKExtremes, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& test) { return test.param == at::kFloat ? "Float32" : "Float64"; });

TEST_P(SoftTopKExtremes, SumZeroIsZeroWithoutGradient) {
  const at::Tensor scores_RE = gaussian({3, 9}, 1, GetParam());
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_TRUE(at::equal(soft_top_k(scores_RE, sums(3, 0), 1.0, kind), at::zeros_like(scores_RE)));
    EXPECT_TRUE(at::equal(score_gradient(scores_RE, 0, 1.0, kind), at::zeros_like(scores_RE)));
  }
}

TEST_P(SoftTopKExtremes, FullSumIsOneWithoutGradient) {
  const at::Tensor scores_RE = gaussian({3, 9}, 1, GetParam());
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_TRUE(at::equal(soft_top_k(scores_RE, sums(3, 9), 1.0, kind), at::ones_like(scores_RE)));
    EXPECT_TRUE(at::equal(score_gradient(scores_RE, 9, 1.0, kind), at::zeros_like(scores_RE)));
  }
}

TEST_P(SoftTopKExtremes, ForbiddenExpertsAreZeroAndTheRestFillsUp) {
  const at::Tensor scores_RE = row({0.5, -kInfinity, 1.5, -kInfinity, -0.5}, GetParam());
  for (const SoftTopKKind kind : kBothKinds) {
    const at::Tensor lambda_RE = soft_top_k(scores_RE, sums(1, 2), 1.0, kind);
    EXPECT_EQ(lambda_RE[0][1].item<double>(), 0);
    EXPECT_EQ(lambda_RE[0][3].item<double>(), 0);
    EXPECT_NEAR(lambda_RE.sum().item<double>(), 2, 1e-6);
    // As many as allowed: exactly the allowed ones.
    EXPECT_TRUE(at::equal(soft_top_k(scores_RE, sums(1, 3), 1.0, kind), row({1, 0, 1, 0, 1}, GetParam())));
    EXPECT_TRUE(at::isfinite(score_gradient(scores_RE, 2, 1.0, kind)).all().item<bool>());
    EXPECT_EQ(score_gradient(scores_RE, 2, 1.0, kind)[0][1].item<double>(), 0);
  }
}

TEST_P(SoftTopKExtremes, AllForbiddenIsZeroForSumZero) {
  const at::Tensor scores_RE = row({-kInfinity, -kInfinity}, GetParam());
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_TRUE(at::equal(soft_top_k(scores_RE, sums(1, 0), 1.0, kind), at::zeros_like(scores_RE)));
  }
}

TEST_P(SoftTopKExtremes, EqualScoresShareTheSum) {
  for (const SoftTopKKind kind : kBothKinds) {
    for (const double value : {0.0, -3e4, 1e9}) {
      const at::Tensor scores_RE = at::full({2, 8}, value, at::TensorOptions(GetParam()));
      EXPECT_LT(largest_difference(soft_top_k(scores_RE, sums(2, 3), 0.1, kind), at::full({2, 8}, 3.0 / 8)),
                1e-7);
    }
  }
}

TEST_P(SoftTopKExtremes, HugeGapsAreExactBeyondTheRangeOfTheExponential) {
  // exp(-200 / 0.01) is 0 in every floating-point type, yet the last three share what the first one leaves.
  const at::Tensor scores_RE = row({300, 100, 100, 100, -1e5}, GetParam());
  const at::Tensor expected_RE = row({1, 1.0 / 3, 1.0 / 3, 1.0 / 3, 0}, GetParam());
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_LT(largest_difference(soft_top_k(scores_RE, sums(1, 2), 0.01, kind), expected_RE), 1e-6);
    EXPECT_TRUE(at::isfinite(score_gradient(scores_RE, 2, 0.01, kind)).all().item<bool>());
  }
  // Several such gaps, one below the other.
  const at::Tensor stairs_RE = row({900, 700, 500, 300, 299.99}, GetParam());
  const double share = 1 / (1 + std::exp(-1.0));
  EXPECT_LT(largest_difference(soft_top_k(stairs_RE, sums(1, 4), 0.01), row({1, 1, 1, share, 1 - share})),
            1e-3);
}

// One entry is saturated, and the second lies so close to the threshold that rounding decides on which side:
// once it is saturated, the threshold of the others may rise to it again.
TEST_P(SoftTopKExtremes, EntriesAtTheThresholdEndTheSearch) {
  constexpr int64_t kRows = 4000;
  constexpr int64_t kOthers = 8;
  ::alarm(60);  // without an end this would be a loop for ever
  const at::Tensor second_R1 = 0.05 + 0.4 * uniform({kRows, 1}, 21, at::kDouble);
  const at::Tensor share_RO = (0.3 * gaussian({kRows, kOthers}, 22, at::kDouble)).softmax(1);
  const at::Tensor exponentials_RE =
      at::cat({at::ones({kRows, 1}, at::kDouble), second_R1, second_R1 * share_RO}, 1);
  const at::Tensor lambda_RE = soft_top_k(exponentials_RE.log().to(GetParam()), sums(kRows, 3), 1.0);
  ::alarm(0);
  const double tolerance = GetParam() == at::kFloat ? 1e-5 : 1e-12;
  EXPECT_LT((lambda_RE.sum(1, false, at::kDouble) - 3).abs().max().item<double>(), tolerance);
  const at::Tensor expected_RE = at::cat({at::ones({kRows, 2}, at::kDouble), share_RO}, 1);
  EXPECT_LT(largest_difference(lambda_RE, expected_RE), tolerance);
}

TEST_P(SoftTopKExtremes, GapAtTheBudgetIsAHardMask) {
  const at::Tensor scores_RE = row({-500, 500, -500, 500, 500}, GetParam());
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_LT(largest_difference(soft_top_k(scores_RE, sums(1, 3), 1.0, kind), row({0, 1, 0, 1, 1})), 1e-7);
    EXPECT_LT(score_gradient(scores_RE, 3, 1.0, kind).abs().max().item<double>(), 1e-5);
  }
}

TEST_P(SoftTopKExtremes, RealSumsAreMetFromZeroToAll) {
  const at::Tensor scores_RE = gaussian({64, 12}, 5, GetParam());
  const double tolerance = GetParam() == at::kFloat ? 2e-6 : 1e-12;
  for (const SoftTopKKind kind : kBothKinds) {
    for (const double sum : {1e-9, 1e-3, 0.5, 1.0, 3.7, 11.0, 11.5, 11.999, 12 - 1e-9}) {
      for (const double temperature : {3.0, 0.3, 0.03}) {
        const at::Tensor totals_R =
            soft_top_k(scores_RE, sums(64, sum), temperature, kind).to(at::kDouble).sum(1);
        EXPECT_LT((totals_R - sum).abs().max().item<double>(), tolerance)
            << "sum " << sum << " at " << temperature;
      }
    }
  }
}

TEST_P(SoftTopKExtremes, NoRowsAndOneExpertWork) {
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_EQ(soft_top_k(at::empty({0, 4}, at::TensorOptions(GetParam())), sums(0, 1), 1.0, kind).size(0), 0);
    EXPECT_NEAR(soft_top_k(row({5}, GetParam()), sums(1, 0.25), 1.0, kind).item<double>(), 0.25, 1e-7);
    EXPECT_EQ(soft_top_k(row({5}, GetParam()), sums(1, 1), 1.0, kind).item<double>(), 1);
  }
}

TEST_P(SoftTopKExtremes, NotANumberAndPlusInfinityAreRefusedWithTheirPlace) {
  for (const double bad : {kNan, kInfinity}) {
    at::Tensor scores_RE = gaussian({200, 7}, 2, GetParam());
    scores_RE[150][3] = bad;
    scores_RE[160][1] = bad;
    const std::string message = numeric_error([&] { soft_top_k(scores_RE, sums(200, 2), 1.0); });
    EXPECT_THAT(message, AllOf(HasSubstr("row 150, column 3"), HasSubstr(std::isnan(bad) ? "nan" : "inf")));
    EXPECT_THAT(numeric_error([&] { hard_top_k(scores_RE, counts(200, 2)); }),
                HasSubstr("row 150, column 3"));
  }
}

TEST_P(SoftTopKExtremes, SumsOutsideTheRowAreRefused) {
  const at::Tensor scores_RE = gaussian({2, 4}, 3, GetParam());
  for (const double sum : {-0.001, 4.001, kNan, kInfinity}) {
    const at::Tensor sums_R = at::tensor({1.0, sum}, at::kDouble);
    EXPECT_THAT(numeric_error([&] { soft_top_k(scores_RE, sums_R, 1.0); }),
                AllOf(HasSubstr("row 1"), HasSubstr("0 to the 4 experts")));
  }
  EXPECT_THAT(numeric_error([&] { hard_top_k(scores_RE, counts(2, 5)); }), HasSubstr("sum to 5"));
  EXPECT_THAT(numeric_error([&] { hard_top_k(scores_RE, counts(2, -1)); }), HasSubstr("sum to -1"));
}

TEST_P(SoftTopKExtremes, MoreThanTheAllowedExpertsIsRefused) {
  const at::Tensor scores_RE = row({1, -kInfinity, 2, -kInfinity}, GetParam());
  EXPECT_THAT(numeric_error([&] { soft_top_k(scores_RE, sums(1, 2.5), 1.0); }),
              AllOf(HasSubstr("2.5 of 4"), HasSubstr("only 2 have a score above -inf")));
  EXPECT_THAT(numeric_error([&] { hard_top_k(scores_RE, counts(1, 3)); }), HasSubstr("3 of 4"));
}

TEST(SoftTopK, RefusesATemperatureThatIsNotPositive) {
  for (const double temperature : {0.0, -1.0, kNan, kInfinity}) {
    EXPECT_THAT(numeric_error([&] {
                  soft_top_k(row({1, 2}), sums(1, 1), temperature);
                }),
                HasSubstr("temperature"));
  }
}

TEST(SoftTopK, RefusesHalfPrecisionScores) {
  EXPECT_THROW(soft_top_k(row({1, 2}, at::kBFloat16), sums(1, 1), 1.0), std::logic_error);
}

TEST(SoftTopK, RefusesASecondDerivative) {
  const at::Tensor scores_RE = gaussian({1, 4}, 4).requires_grad_(true);
  const at::Tensor loss = soft_top_k(scores_RE, sums(1, 2), 1.0).square().sum();
  EXPECT_THAT(
      numeric_error([&] { torch::autograd::grad({loss}, {scores_RE}, {}, true, /*create_graph=*/true); }),
      HasSubstr("create_graph"));
}

}  // namespace
}  // namespace smoe::testing
