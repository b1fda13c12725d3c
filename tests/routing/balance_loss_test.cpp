#include "routing_test_support.h"
#include "smoe/routing/routing_plan.h"

namespace smoe::testing {
namespace {

double loss_of(const at::Tensor& logits_QLE, const at::Tensor& count_Q, const RoutingConfig& config = {}) {
  const RoutingPlan plan = make_routing_plan(logits_QLE, count_Q, config, {});
  return balance_loss(plan, config, {}).item<double>();
}

TEST(BalanceLoss, IsOneWhenTheLoadIsUniform) {
  // Segment q prefers expert q: every expert is selected once.
  const at::Tensor logits_QLE = (at::eye(8) * 3).unsqueeze(1).expand({8, 2, 8});
  EXPECT_NEAR(loss_of(logits_QLE, counts(8, 1)), 1.0, 1e-6);
  RoutingConfig scaled;
  scaled.soft_top_k.soft_budget_scale = 1.5;
  EXPECT_NEAR(loss_of(logits_QLE, counts(8, 1), scaled), 1.0, 1e-6);
}

TEST(BalanceLoss, IsEOverKWhenAllSegmentsTakeTheSameExperts) {
  at::Tensor logits_QLE = at::full({6, 3, 12}, -50.0);
  logits_QLE.slice(2, 4, 7).fill_(50.0);
  EXPECT_NEAR(loss_of(logits_QLE, counts(6, 3)), 12.0 / 3, 1e-5);
}

TEST(BalanceLoss, EqualsItsFormulaForOneBudget) {
  const at::Tensor logits_QLE = gaussian({30, 2, 10}, 91);
  const RoutingPlan plan = make_routing_plan(logits_QLE, counts(30, 4), {}, {});
  double expected = 0;
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t expert = 0; expert < 10; ++expert) {
      double load = 0;
      double share = 0;
      for (int64_t segment = 0; segment < 30; ++segment) {
        load += plan.mask_QLE[segment][layer][expert].item<double>() / 30;
        share += plan.soft_QLE[segment][layer][expert].item<double>() / 30;
      }
      expected += load * share * 10 / (4 * 4) / 2;
    }
  }
  EXPECT_NEAR(balance_loss(plan, {}, {}).item<double>(), expected, 1e-5);
}

TEST(BalanceLoss, LeavesOutSegmentsWithoutExperts) {
  const at::Tensor logits_QLE = gaussian({10, 2, 8}, 92);
  const at::Tensor count_Q = at::tensor({0, 3, 3, 0, 3, 3, 3, 3, 3, 0}, at::kLong);
  const at::Tensor kept_Q = count_Q.nonzero().squeeze(1);
  EXPECT_NEAR(loss_of(logits_QLE, count_Q), loss_of(logits_QLE.index_select(0, kept_Q), counts(7, 3)), 1e-6);
  EXPECT_EQ(loss_of(logits_QLE, counts(10, 0)), 0.0);
}

TEST(BalanceLoss, WeightsSegmentsOfDifferentBudgetsEqually) {
  // Uniform within each budget: still one, which a plain mean of masks would not give.
  const at::Tensor logits_QLE = (at::eye(8) * 3).repeat({2, 1}).unsqueeze(1);
  EXPECT_NEAR(loss_of(logits_QLE, at::tensor({1, 8}, at::kLong).repeat_interleave(8)), 1.0, 1e-6);
}

TEST(BalanceLoss, RefusesAPlanWithoutLogits) {
  RoutingConfig config;
  config.mask_source = MaskSource::kPrefix;
  const RoutingPlan plan = make_routing_plan(at::zeros({2, 1, 4}), counts(2, 1), config, {});
  EXPECT_THROW(balance_loss(plan, config, {}), ConfigError);
}

}  // namespace
}  // namespace smoe::testing
