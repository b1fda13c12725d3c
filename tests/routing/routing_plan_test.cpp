#include "smoe/routing/routing_plan.h"

#include <torch/csrc/autograd/autograd.h>

#include "routing_test_support.h"

namespace smoe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RoutingPlan, HasExactlyItsBudgetInEveryLayer) {
  const at::Tensor logits_QLE = gaussian({6, 4, 16}, 71).requires_grad_(true);
  const at::Tensor count_Q = at::tensor({0, 1, 3, 8, 15, 16}, at::kLong);
  const RoutingPlan plan = make_routing_plan(logits_QLE, count_Q, {}, {});
  EXPECT_TRUE(at::equal(plan.mask_QLE.sum(2).to(at::kLong), count_Q.unsqueeze(1).expand({6, 4})));
  EXPECT_TRUE(at::equal(plan.count_Q, count_Q));
  EXPECT_EQ(plan.mask_QLE.scalar_type(), at::kFloat);
  EXPECT_FALSE(plan.soft_QLE.requires_grad());
  EXPECT_TRUE(plan.logits_QLE.requires_grad());
}

TEST(RoutingPlan, RoutesTheGradientThroughTheSoftMask) {
  const at::Tensor logits_QLE = gaussian({5, 3, 16}, 72);
  const at::Tensor weights_QLE = gaussian({5, 3, 16}, 73);
  const at::Tensor leaf_QLE = logits_QLE.clone().requires_grad_(true);
  torch::autograd::backward(
      {(make_routing_plan(leaf_QLE, counts(5, 4), {}, {}).mask_QLE * weights_QLE).sum()}, {});
  const at::Tensor soft_leaf_RE = logits_QLE.reshape({15, 16}).clone().requires_grad_(true);
  torch::autograd::backward(
      {(soft_top_k(soft_leaf_RE, sums(15, 4), 1.0) * weights_QLE.reshape({15, 16})).sum()}, {});
  EXPECT_GT(leaf_QLE.grad().abs().max().item<double>(), 0);
  EXPECT_TRUE(at::equal(leaf_QLE.grad().reshape({15, 16}), soft_leaf_RE.grad()));
}

TEST(RoutingPlan, SoftBudgetIsScaledAndCapped) {
  RoutingConfig config;
  config.soft_top_k.soft_budget_scale = 1.125;
  const RoutingPlan plan =
      make_routing_plan(gaussian({2, 3, 16}, 74), at::tensor({8, 15}, at::kLong), config, {});
  EXPECT_LT((plan.soft_QLE[0].sum(1) - 9).abs().max().item<double>(), 1e-5);
  EXPECT_LT((plan.soft_QLE[1].sum(1) - 16).abs().max().item<double>(), 1e-5);
  EXPECT_TRUE((plan.mask_QLE[0].sum(1) == 8).all().item<bool>());
}

TEST(RoutingPlan, TemperatureAndKindShapeTheSoftMaskOnly) {
  const at::Tensor logits_QLE = gaussian({2, 3, 16}, 75);
  RoutingConfig config;
  const RoutingPlan plain = make_routing_plan(logits_QLE, counts(2, 4), config, {});
  SelectionControls cold;
  cold.temperature = 0.1;
  const RoutingPlan sharp = make_routing_plan(logits_QLE, counts(2, 4), config, cold);
  config.soft_top_k.kind = SoftTopKKind::kSigmoid;
  const RoutingPlan other = make_routing_plan(logits_QLE, counts(2, 4), config, {});
  EXPECT_TRUE(at::equal(plain.mask_QLE, sharp.mask_QLE));
  EXPECT_TRUE(at::equal(plain.mask_QLE, other.mask_QLE));
  EXPECT_GT(largest_difference(plain.soft_QLE, sharp.soft_QLE), 0.1);
  EXPECT_GT(largest_difference(plain.soft_QLE, other.soft_QLE), 0.01);
}

TEST(RoutingPlan, BiasMovesTheSelectionButNotTheSoftMask) {
  const at::Tensor logits_QLE = gaussian({8, 2, 16}, 76);
  at::Tensor bias_LE = at::zeros({2, 16});
  bias_LE[0][3] = 100;
  bias_LE[1][5] = -100;
  const RoutingPlan plain = make_routing_plan(logits_QLE, counts(8, 4), {}, {});
  const RoutingPlan biased = make_routing_plan(logits_QLE, counts(8, 4), {}, {}, bias_LE);
  EXPECT_TRUE((biased.mask_QLE.select(1, 0).select(1, 3) == 1).all().item<bool>());
  EXPECT_TRUE((biased.mask_QLE.select(1, 1).select(1, 5) == 0).all().item<bool>());
  EXPECT_TRUE(at::equal(plain.soft_QLE, biased.soft_QLE));
}

TEST(RoutingPlan, NoiseIsReproducibleAndGrowsTheDistance) {
  const at::Tensor logits_QLE = gaussian({200, 2, 16}, 77);
  const auto masks = [&](double noise, uint64_t seed) {
    return make_routing_plan(logits_QLE, counts(200, 4), {}, {.temperature = 1, .noise = noise, .seed = seed})
        .mask_QLE;
  };
  const at::Tensor plain_QLE = masks(0, 1);
  EXPECT_TRUE(at::equal(masks(0.5, 1), masks(0.5, 1)));
  EXPECT_FALSE(at::equal(masks(0.5, 1), masks(0.5, 2)));
  const auto kept = [&](double noise) { return (masks(noise, 1) * plain_QLE).sum().item<double>() / 1600; };
  EXPECT_EQ(kept(0), 1);
  EXPECT_GT(kept(0.1), kept(1.0));
  EXPECT_GT(kept(1.0), kept(100.0));
  EXPECT_NEAR(kept(100.0), 4.0 / 16, 0.06);  // only noise is left: chance
}

TEST(RoutingPlan, PrefixTakesTheFirstExperts) {
  RoutingConfig config;
  config.mask_source = MaskSource::kPrefix;
  const RoutingPlan plan =
      make_routing_plan(gaussian({2, 1, 5}, 78), at::tensor({2, 4}, at::kLong), config, {});
  EXPECT_TRUE(at::equal(plan.mask_QLE.squeeze(1), at::cat({row({1, 1, 0, 0, 0}), row({1, 1, 1, 1, 0})})));
}

TEST(RoutingPlan, InputIndependentLogitsGiveOneMaskWithAGradient) {
  RoutingConfig config;
  config.mask_source = MaskSource::kInputIndependent;
  const at::Tensor leaf_LE = gaussian({3, 16}, 79).requires_grad_(true);
  const RoutingPlan plan =
      make_routing_plan(leaf_LE.unsqueeze(0).expand({7, 3, 16}), counts(7, 4), config, {});
  EXPECT_TRUE((plan.mask_QLE == plan.mask_QLE[0]).all().item<bool>());
  torch::autograd::backward({(plan.mask_QLE * gaussian({7, 3, 16}, 80)).sum()}, {});
  EXPECT_GT(leaf_LE.grad().abs().max().item<double>(), 0);
}

TEST(RoutingPlan, ReportsBrokenLogitsWithTheirPlace) {
  at::Tensor logits_QLE = gaussian({5, 3, 16}, 81);
  logits_QLE[2][1][9] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(numeric_error([&] { make_routing_plan(logits_QLE, counts(5, 4), {}, {}); }),
              AllOf(HasSubstr("row = segment * 3 + layer"), HasSubstr("row 7, column 9"), HasSubstr("nan")));
}

TEST(RoutingPlan, RefusesBudgetsOutsideTheLayerForEverySource) {
  for (const MaskSource source : {MaskSource::kLearned, MaskSource::kRandom, MaskSource::kPrefix}) {
    RoutingConfig config;
    config.mask_source = source;
    for (const int64_t count : {-1, 17}) {
      EXPECT_THAT(numeric_error([&] {
                    make_routing_plan(gaussian({2, 1, 16}, 82),
                                      at::tensor(std::vector<int64_t>{4, count}, at::kLong), config, {});
                  }),
                  AllOf(HasSubstr("segment 1"), HasSubstr(std::to_string(count)), HasSubstr("16 experts")));
    }
  }
}

TEST(RoutingPlan, RefusesWrongShapesAndTypes) {
  const at::Tensor logits_QLE = gaussian({2, 3, 4}, 83);
  EXPECT_THROW(make_routing_plan(logits_QLE.to(at::kBFloat16), counts(2, 1), {}, {}), std::logic_error);
  EXPECT_THROW(make_routing_plan(logits_QLE, counts(3, 1), {}, {}), std::logic_error);
  EXPECT_THROW(make_routing_plan(logits_QLE, counts(2, 1).to(at::kInt), {}, {}), std::logic_error);
  EXPECT_THROW(make_routing_plan(logits_QLE, counts(2, 1), {}, {}, at::zeros({4, 3})), std::logic_error);
}

TEST(RoutingPlan, OfNoSegmentsIsEmpty) {
  const RoutingPlan plan = make_routing_plan(at::empty({0, 3, 4}), counts(0, 1), {}, {});
  EXPECT_EQ(plan.mask_QLE.sizes(), (std::vector<int64_t>{0, 3, 4}));
}

TEST(SelectionControls, AreOffByDefaultAtAnyProgress) {
  for (const double progress : {0.0, 0.5, 1.0}) {
    const SelectionControls controls = selection_controls(RoutingConfig{}, progress, 5);
    EXPECT_EQ(controls.temperature, 1.0);
    EXPECT_EQ(controls.noise, 0.0);
    EXPECT_EQ(controls.random_probability, 0.0);
    EXPECT_EQ(controls.seed, 5U);
  }
}

TEST(SelectionControls, MoveLinearlyOverTheirShareOfTraining) {
  RoutingConfig config;
  config.soft_top_k.temperature = 1.0;
  config.soft_top_k.final_temperature = 0.2;
  config.selection_noise = 2.0;
  config.selection_noise_fraction = 1.0;
  config.random_mask_fraction = 0.8;
  const SelectionControls start = selection_controls(config, 0.0, 0);
  EXPECT_DOUBLE_EQ(start.temperature, 1.0);
  EXPECT_DOUBLE_EQ(start.noise, 2.0);
  EXPECT_DOUBLE_EQ(start.random_probability, 1.0);
  const SelectionControls middle = selection_controls(config, 0.5, 0);
  EXPECT_DOUBLE_EQ(middle.temperature, 0.6);
  EXPECT_DOUBLE_EQ(middle.noise, 1.0);
  EXPECT_DOUBLE_EQ(middle.random_probability, 0.375);
  const SelectionControls end = selection_controls(config, 1.0, 0);
  EXPECT_DOUBLE_EQ(end.temperature, 0.2);
  EXPECT_DOUBLE_EQ(end.noise, 0.0);
  EXPECT_DOUBLE_EQ(end.random_probability, 0.0);
  EXPECT_THROW(selection_controls(config, 1.01, 0), std::logic_error);
}

}  // namespace
}  // namespace smoe::testing
