// Masks of smaller budgets lie inside those of larger ones when they come from the same logits.
#include "routing_test_support.h"
#include "smoe/routing/router_statistics.h"
#include "smoe/routing/routing_plan.h"

namespace smoe::testing {
namespace {

RoutingPlan plan_with(const at::Tensor& logits_QLE, int64_t count, const RoutingConfig& config,
                      const SelectionControls& controls = {}) {
  return make_routing_plan(logits_QLE, counts(logits_QLE.size(0), count), config, controls);
}

bool is_nested(const at::Tensor& smaller, const at::Tensor& larger) {
  return (smaller <= larger).all().item<bool>();
}

TEST(Nesting, HoldsForAllBudgetsOfSharedLogits) {
  const at::Tensor logits_QLE = gaussian({20, 3, 64}, 51);
  for (const MaskSource source : {MaskSource::kLearned, MaskSource::kRandom, MaskSource::kPrefix}) {
    RoutingConfig config;
    config.mask_source = source;
    at::Tensor last_QLE = at::zeros_like(logits_QLE);
    for (int64_t count = 0; count <= 64; ++count) {
      const at::Tensor mask_QLE = plan_with(logits_QLE, count, config).mask_QLE;
      EXPECT_TRUE(is_nested(last_QLE, mask_QLE)) << count;
      EXPECT_TRUE((mask_QLE.sum(2) == count).all().item<bool>());
      last_QLE = mask_QLE;
    }
  }
}

TEST(Nesting, HoldsWhenLogitsTie) {
  const at::Tensor logits_QLE = (gaussian({50, 2, 64}, 52) * 1.5).round();
  const RoutingConfig config;
  const at::Tensor small_QLE = plan_with(logits_QLE, 5, config).mask_QLE;
  const at::Tensor middle_QLE = plan_with(logits_QLE, 24, config).mask_QLE;
  const at::Tensor large_QLE = plan_with(logits_QLE, 43, config).mask_QLE;
  EXPECT_TRUE(is_nested(small_QLE, middle_QLE));
  EXPECT_TRUE(is_nested(middle_QLE, large_QLE));
  EXPECT_EQ(nesting_ratio(small_QLE, large_QLE), 1.0);
}

TEST(Nesting, HoldsUnderNoiseAndRandomMasksOfOneSeed) {
  const at::Tensor logits_QLE = gaussian({40, 3, 32}, 53);
  const SelectionControls controls{.temperature = 1.0, .noise = 0.7, .random_probability = 0.5, .seed = 9};
  const RoutingConfig config;
  EXPECT_TRUE(is_nested(plan_with(logits_QLE, 4, config, controls).mask_QLE,
                        plan_with(logits_QLE, 11, config, controls).mask_QLE));
}

TEST(Nesting, HoldsForSoftMasksOfOneTemperature) {
  const at::Tensor logits_QLE = gaussian({40, 3, 32}, 54);
  const RoutingConfig config;
  const at::Tensor gap_QLE =
      plan_with(logits_QLE, 11, config).soft_QLE - plan_with(logits_QLE, 4, config).soft_QLE;
  EXPECT_GE(gap_QLE.min().item<double>(), -1e-6);
}

// A batch with several budgets ranks every row once; so does each budget alone.
TEST(Nesting, BudgetsOfOneBatchEqualTheSameBudgetsAlone) {
  const at::Tensor logits_QLE = (gaussian({4, 3, 32}, 55) * 2).round();
  const RoutingConfig config;
  const at::Tensor tiled_QLE = logits_QLE.repeat({3, 1, 1});
  const at::Tensor count_Q = at::tensor({2, 9, 20}, at::kLong).repeat_interleave(4);
  const RoutingPlan together = make_routing_plan(tiled_QLE, count_Q, config, {});
  const int64_t budgets[] = {2, 9, 20};
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(together.mask_QLE.slice(0, 4 * i, 4 * i + 4),
                          plan_with(logits_QLE, budgets[i], config).mask_QLE));
  }
}

TEST(NestingRatio, CountsSharedExpertsOfTheSmallerMask) {
  const at::Tensor smaller_QLE = at::tensor({1., 1., 0., 0., 1., 0., 0., 0.}, at::kFloat).reshape({2, 1, 4});
  const at::Tensor larger_QLE = at::tensor({1., 0., 1., 1., 0., 1., 1., 1.}, at::kFloat).reshape({2, 1, 4});
  EXPECT_DOUBLE_EQ(nesting_ratio(smaller_QLE, larger_QLE), (0.5 + 0.0) / 2);
  EXPECT_DOUBLE_EQ(nesting_ratio(at::zeros({2, 1, 4}), larger_QLE), 1.0);
  EXPECT_THROW(nesting_ratio(smaller_QLE, larger_QLE.slice(0, 0, 1)), std::logic_error);
}

TEST(NestingRatio, OfIndependentLogitsIsTheShareOfTheLargerBudget) {
  const RoutingConfig config;
  const double ratio = nesting_ratio(plan_with(gaussian({200, 4, 212}, 56), 24, config).mask_QLE,
                                     plan_with(gaussian({200, 4, 212}, 57), 43, config).mask_QLE);
  EXPECT_NEAR(ratio, 43.0 / 212, 0.01);
}

}  // namespace
}  // namespace smoe::testing
