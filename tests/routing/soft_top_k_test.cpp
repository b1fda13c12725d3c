// Laws that soft_top_k obeys for any scores, and agreement with independent solvers.
#include <cmath>

#include "routing_test_support.h"
#include "smoe/routing/soft_top_k_solvers.h"

namespace smoe::testing {
namespace {

constexpr SoftTopKKind kBothKinds[] = {SoftTopKKind::kEntropy, SoftTopKKind::kSigmoid};
constexpr double kTemperatures[] = {3, 1, 0.3, 0.1, 0.03, 0.01};

// The dual iteration of the literature, as it is usually unrolled, in float64. One row.
std::vector<double> dual_iteration(const std::vector<double>& scores, double sum, double temperature,
                                   int rounds) {
  std::vector<double> cap(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) cap[i] = -scores[i];
  double shift = 0;
  for (int round = 0; round < rounds; ++round) {
    double maximum = -kInfinity;
    for (size_t i = 0; i < scores.size(); ++i)
      maximum = std::max(maximum, (scores[i] + cap[i]) / temperature);
    double total = 0;
    for (size_t i = 0; i < scores.size(); ++i)
      total += std::exp((scores[i] + cap[i]) / temperature - maximum);
    shift = temperature * (std::log(sum) - maximum - std::log(total));
    for (size_t i = 0; i < scores.size(); ++i) cap[i] = -std::max(scores[i] + shift, 0.0);
  }
  std::vector<double> lambda(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) lambda[i] = std::exp((scores[i] + shift + cap[i]) / temperature);
  return lambda;
}

TEST(SoftTopK, RowsSumToTheirBudget) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor scores_RE = gaussian({500, 212}, 11, dtype);
    for (const SoftTopKKind kind : kBothKinds) {
      for (const double temperature : kTemperatures) {
        for (const double sum : {1.0, 5.0, 43.0, 63.0, 106.5, 211.0}) {
          const at::Tensor lambda_RE =
              soft_top_k(scores_RE, sums(500, sum), temperature, kind).to(at::kDouble);
          const double error = (lambda_RE.sum(1) - sum).abs().max().item<double>();
          EXPECT_LE(error, dtype == at::kFloat ? 1e-5 : 1e-11)
              << "k " << sum << " temperature " << temperature;
          EXPECT_GE(lambda_RE.min().item<double>(), 0);
          EXPECT_LE(lambda_RE.max().item<double>(), 1);
        }
      }
    }
  }
}

TEST(SoftTopK, AgreesWithTheDualIterationWhereThatConverges) {
  const at::Tensor scores_RE = gaussian({8, 40}, 12, at::kDouble);
  struct Case {
    double temperature;
    int rounds;
  };
  int num_converged = 0;
  for (const auto& [temperature, rounds] : {Case{1.0, 200}, Case{0.3, 2000}, Case{0.1, 5000}}) {
    for (const double sum : {1.0, 5.0, 12.5}) {
      const at::Tensor lambda_RE = soft_top_k(scores_RE, sums(8, sum), temperature);
      for (int64_t r = 0; r < 8; ++r) {
        const double* const scores = scores_RE[r].const_data_ptr<double>();
        const std::vector<double> loop =
            dual_iteration(std::vector<double>(scores, scores + 40), sum, temperature, rounds);
        const at::Tensor expected_E = at::tensor(loop, at::kDouble);
        // The loop tells by its own sum whether it has arrived.
        if (std::abs(expected_E.sum().item<double>() - sum) > 1e-11) continue;
        ++num_converged;
        EXPECT_LT(largest_difference(lambda_RE[r], expected_E), 1e-9)
            << "temperature " << temperature << " k " << sum;
      }
    }
  }
  EXPECT_GT(num_converged, 60);  // of 72
}

TEST(SoftTopK, IsWhereTheUsualTwentyIterationsAreNot) {
  const at::Tensor scores_E = gaussian({212}, 13, at::kDouble);
  const double* const scores = scores_E.const_data_ptr<double>();
  const std::vector<double> loop = dual_iteration(std::vector<double>(scores, scores + 212), 43, 0.1, 20);
  double loop_sum = 0;
  for (const double lambda : loop) loop_sum += lambda;
  const double exact_sum = soft_top_k(scores_E.unsqueeze(0), sums(1, 43), 0.1).sum().item<double>();
  EXPECT_GT(std::abs(loop_sum - 43), 1.0);
  EXPECT_NEAR(exact_sum, 43, 1e-11);
}

// KKT: one shift for all unsaturated entries, which no saturated entry contradicts.
TEST(SoftTopK, SatisfiesTheOptimalityConditions) {
  const at::Tensor scores_RE = gaussian({200, 50}, 14, at::kDouble);
  for (const double temperature : {1.0, 0.1}) {
    const at::Tensor lambda_RE = soft_top_k(scores_RE, sums(200, 9), temperature);
    const at::Tensor shift_RE = lambda_RE.log() - scores_RE / temperature;
    const at::Tensor inner_RE = lambda_RE < 1;
    const at::Tensor highest_R = at::where(inner_RE, shift_RE, -kInfinity).amax(1);
    const at::Tensor lowest_R = at::where(inner_RE, shift_RE, kInfinity).amin(1);
    EXPECT_LT((highest_R - lowest_R).max().item<double>(), 1e-10);
    EXPECT_TRUE(at::logical_or(inner_RE, scores_RE / temperature + highest_R.unsqueeze(1) >= -1e-10)
                    .all()
                    .item<bool>());
  }
}

TEST(SoftTopK, TensorSolversAgreeWithTheLoops) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    at::Tensor scores_RE = gaussian({300, 37}, 15, dtype);
    scores_RE.slice(0, 0, 20).mul_(400);                          // wide gaps
    scores_RE.slice(0, 20, 40).fill_(-2);                         // all equal
    scores_RE.slice(0, 40, 60).slice(1, 3, 9).fill_(-kInfinity);  // forbidden
    scores_RE.slice(0, 60, 80).round_();                          // ties
    at::Tensor sums_R = uniform({300}, 16, at::kDouble) * 30;
    sums_R.slice(0, 80, 90).fill_(0);
    sums_R.slice(0, 90, 100).fill_(37);
    sums_R.slice(0, 100, 150).round_();
    const at::Tensor gradient_RE = gaussian({300, 37}, 17, dtype);
    const double tolerance = dtype == at::kFloat ? 1e-7 : 1e-9;  // float32: the rounding of the result
    for (const SoftTopKKind kind : kBothKinds) {
      for (const double temperature : {3.0, 1.0, 0.1, 0.01}) {
        const at::Tensor rows_RE = soft_top_k_forward_rows(scores_RE, sums_R, temperature, kind);
        const at::Tensor tensor_RE = soft_top_k_forward_tensor(scores_RE, sums_R, temperature, kind);
        EXPECT_EQ(tensor_RE.scalar_type(), dtype);
        EXPECT_LT(largest_difference(rows_RE, tensor_RE), tolerance) << "temperature " << temperature;
        const at::Tensor back_rows_RE = soft_top_k_backward_rows(gradient_RE, rows_RE, temperature, kind);
        const at::Tensor back_tensor_RE = soft_top_k_backward_tensor(gradient_RE, rows_RE, temperature, kind);
        EXPECT_LT(largest_difference(back_rows_RE, back_tensor_RE) * temperature, 2e-6);
      }
    }
  }
}

// Rows are solved eight at a time; experts are not.
TEST(SoftTopK, Float32IsRightToItsRoundingForAnyNumberOfRowsAndExperts) {
  for (const int64_t num_rows : {1, 7, 8, 9, 20}) {
    for (const int64_t num_experts : {1, 2, 7, 8, 31, 64, 211}) {
      const at::Tensor scores_RE = gaussian({num_rows, num_experts}, 41);
      const at::Tensor sums_R = uniform({num_rows}, 42, at::kDouble) * num_experts;
      sums_R[0] = 0;  // left alone by the loop that solves the others
      const at::Tensor gradient_RE = gaussian({num_rows, num_experts}, 43);
      for (const double temperature : kTemperatures) {
        const at::Tensor exact_RE =
            soft_top_k_forward_tensor(scores_RE.to(at::kDouble), sums_R, temperature, SoftTopKKind::kEntropy);
        const at::Tensor rows_RE =
            soft_top_k_forward_rows(scores_RE, sums_R, temperature, SoftTopKKind::kEntropy);
        EXPECT_LT(largest_difference(rows_RE, exact_RE), 1e-7)
            << num_rows << " rows, " << num_experts << " experts, temperature " << temperature;
        const at::Tensor backward_RE =
            soft_top_k_backward_rows(gradient_RE, rows_RE, temperature, SoftTopKKind::kEntropy);
        const at::Tensor expected_RE = soft_top_k_backward_tensor(
            gradient_RE.to(at::kDouble), rows_RE.to(at::kDouble), temperature, SoftTopKKind::kEntropy);
        EXPECT_LT(largest_difference(backward_RE, expected_RE) * temperature, 2e-6);
      }
    }
  }
}

TEST(SoftTopK, RowsAreIndependent) {
  const at::Tensor scores_RE = gaussian({130, 19}, 18);
  const at::Tensor sums_R = uniform({130}, 19, at::kDouble) * 19;
  for (const SoftTopKKind kind : kBothKinds) {
    const at::Tensor together_RE = soft_top_k(scores_RE, sums_R, 0.5, kind);
    for (const int64_t r : {0, 63, 64, 129}) {
      const at::Tensor alone_RE =
          soft_top_k(scores_RE.slice(0, r, r + 1), sums_R.slice(0, r, r + 1).contiguous(), 0.5, kind);
      EXPECT_LT(largest_difference(alone_RE[0], together_RE[r]), 1e-6);
    }
  }
}

TEST(SoftTopK, ReadsScoresThatAreNotContiguous) {
  const at::Tensor scores_ER = gaussian({19, 70}, 20);
  const at::Tensor expected_RE = soft_top_k(scores_ER.t().contiguous(), sums(70, 4), 1.0);
  EXPECT_TRUE(at::equal(soft_top_k(scores_ER.t(), sums(70, 4), 1.0), expected_RE));
}

TEST(SoftTopK, IgnoresAShiftOfAllScores) {
  const at::Tensor scores_RE = gaussian({50, 31}, 21, at::kDouble);
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_LT(largest_difference(soft_top_k(scores_RE, sums(50, 7), 0.3, kind),
                                 soft_top_k(scores_RE + 1000, sums(50, 7), 0.3, kind)),
              1e-11);
  }
}

TEST(SoftTopK, MovesWithAPermutationOfTheExperts) {
  const at::Tensor scores_RE = gaussian({50, 31}, 22, at::kDouble);
  const at::Tensor order_E =
      at::randperm(31, at::detail::createCPUGenerator(23), at::TensorOptions(at::kLong));
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_LT(largest_difference(soft_top_k(scores_RE, sums(50, 7), 0.3, kind).index_select(1, order_E),
                                 soft_top_k(scores_RE.index_select(1, order_E), sums(50, 7), 0.3, kind)),
              1e-12);
  }
}

TEST(SoftTopK, DependsOnScoresOverTemperatureOnly) {
  const at::Tensor scores_RE = gaussian({50, 31}, 24, at::kDouble);
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_LT(largest_difference(soft_top_k(scores_RE, sums(50, 7), 0.3, kind),
                                 soft_top_k(scores_RE * 7, sums(50, 7), 2.1, kind)),
              1e-12);
  }
}

TEST(SoftTopK, GrowsWithTheSumInEveryEntry) {
  const at::Tensor scores_RE = gaussian({200, 31}, 25, at::kDouble);
  for (const SoftTopKKind kind : kBothKinds) {
    at::Tensor last_RE = at::zeros_like(scores_RE);
    for (double sum = 0.5; sum < 31; sum += 0.5) {
      const at::Tensor lambda_RE = soft_top_k(scores_RE, sums(200, sum), 0.2, kind);
      EXPECT_GE((lambda_RE - last_RE).min().item<double>(), -1e-13) << "sum " << sum;
      last_RE = lambda_RE;
    }
  }
}

TEST(SoftTopK, ApproachesTheHardMaskAsTheTemperatureFalls) {
  const at::Tensor scores_RE = gaussian({20, 31}, 26, at::kDouble);
  const at::Tensor hard_RE = hard_top_k(scores_RE, counts(20, 7));
  for (const SoftTopKKind kind : kBothKinds) {
    EXPECT_LT(largest_difference(soft_top_k(scores_RE, sums(20, 7), 1e-6, kind), hard_RE), 1e-6);
  }
}

}  // namespace
}  // namespace smoe::testing
