#include "routing_test_support.h"
#include "smoe/routing/routing_plan.h"

namespace smoe::testing {
namespace {

RoutingConfig random_source() {
  RoutingConfig config;
  config.mask_source = MaskSource::kRandom;
  return config;
}

SelectionControls with_seed(uint64_t seed) {
  SelectionControls controls;
  controls.seed = seed;
  return controls;
}

TEST(RandomMasks, UseEveryExpertEquallyOften) {
  const int64_t num_segments = 4000;
  const at::Tensor shape_QLE = at::zeros({num_segments, 2, 32});
  const RoutingPlan plan =
      make_routing_plan(shape_QLE, counts(num_segments, 8), random_source(), with_seed(3));
  const at::Tensor share_LE = plan.mask_QLE.mean(0);
  // Binomial with p = 1/4: standard deviation 0.0068; five of them over 64 draws.
  EXPECT_LT((share_LE - 0.25).abs().max().item<double>(), 0.035);
  // Chi-square over the experts of a layer has mean 31 * (1 - p), about 23, with deviation 6.
  const at::Tensor chi_L = ((share_LE - 0.25).square() * static_cast<double>(num_segments) / 0.25).sum(1);
  EXPECT_LT(chi_L.max().item<double>(), 55);
  EXPECT_GT(chi_L.min().item<double>(), 5);
}

TEST(RandomMasks, OfTwoSegmentsOverlapByChance) {
  const RoutingPlan plan =
      make_routing_plan(at::zeros({4000, 2, 32}), counts(4000, 8), random_source(), with_seed(4));
  const auto overlap = [](const at::Tensor& a, const at::Tensor& b) {
    return (a * b).sum(-1).mean().item<double>();
  };
  EXPECT_NEAR(overlap(plan.mask_QLE.slice(0, 1), plan.mask_QLE.slice(0, 0, 3999)), 2.0, 0.1);
  EXPECT_NEAR(overlap(plan.mask_QLE.select(1, 0), plan.mask_QLE.select(1, 1)), 2.0, 0.1);
}

TEST(RandomMasks, DependOnSeedSegmentAndLayerOnly) {
  const auto masks = [](const at::Tensor& logits_QLE, uint64_t seed) {
    return make_routing_plan(logits_QLE, counts(logits_QLE.size(0), 5), random_source(), with_seed(seed))
        .mask_QLE;
  };
  const at::Tensor large_QLE = masks(gaussian({50, 6, 32}, 61), 7);
  // A smaller batch and other logits see the same masks; another seed does not.
  EXPECT_TRUE(at::equal(masks(gaussian({20, 4, 32}, 62), 7), large_QLE.slice(0, 0, 20).slice(1, 0, 4)));
  EXPECT_FALSE(at::equal(masks(gaussian({50, 6, 32}, 61), 8), large_QLE));
}

TEST(RandomMasks, CarryNoGradientAndNoLogits) {
  const at::Tensor logits_QLE = gaussian({3, 2, 8}, 63).requires_grad_(true);
  for (const MaskSource source : {MaskSource::kRandom, MaskSource::kPrefix}) {
    RoutingConfig config;
    config.mask_source = source;
    const RoutingPlan plan = make_routing_plan(logits_QLE, counts(3, 2), config, {});
    EXPECT_FALSE(plan.mask_QLE.requires_grad());
    EXPECT_FALSE(plan.soft_QLE.defined());
    EXPECT_FALSE(plan.logits_QLE.defined());
  }
}

TEST(RandomToLearned, ReplacesTheExpectedShareOfSegments) {
  const at::Tensor logits_QLE = gaussian({2000, 2, 32}, 64);
  const RoutingConfig config;
  const at::Tensor learned_QLE = make_routing_plan(logits_QLE, counts(2000, 8), config, {}).mask_QLE;
  SelectionControls controls = with_seed(11);
  at::Tensor last_random_QL;
  for (const double probability : {1.0, 0.6, 0.3, 0.0}) {
    controls.random_probability = probability;
    const at::Tensor mask_QLE = make_routing_plan(logits_QLE, counts(2000, 8), config, controls).mask_QLE;
    EXPECT_TRUE((mask_QLE.sum(2) == 8).all().item<bool>());
    const at::Tensor random_QL = (mask_QLE != learned_QLE).any(2);
    EXPECT_NEAR(random_QL.to(at::kFloat).mean().item<double>(), probability, 0.035);
    // All layers of a segment go together, and a segment that has become learned stays so.
    EXPECT_TRUE(at::equal(random_QL.select(1, 0), random_QL.select(1, 1)));
    if (last_random_QL.defined()) {
      EXPECT_TRUE(at::logical_or(last_random_QL, at::logical_not(random_QL)).all().item<bool>());
    }
    last_random_QL = random_QL;
  }
}

TEST(RandomToLearned, StartsWithTheMasksOfTheRandomSource) {
  const at::Tensor logits_QLE = gaussian({30, 2, 32}, 65);
  SelectionControls controls = with_seed(12);
  controls.random_probability = 1.0;
  EXPECT_TRUE(at::equal(make_routing_plan(logits_QLE, counts(30, 8), {}, controls).mask_QLE,
                        make_routing_plan(logits_QLE, counts(30, 8), random_source(), controls).mask_QLE));
}

TEST(RandomToLearned, NeverSelectsAForbiddenExpert) {
  at::Tensor logits_QLE = gaussian({200, 1, 8}, 66);
  logits_QLE.select(2, 5).fill_(-kInfinity);
  SelectionControls controls = with_seed(13);
  controls.random_probability = 1.0;
  const at::Tensor mask_QLE = make_routing_plan(logits_QLE, counts(200, 7), {}, controls).mask_QLE;
  EXPECT_EQ(mask_QLE.select(2, 5).sum().item<double>(), 0);
}

}  // namespace
}  // namespace smoe::testing
