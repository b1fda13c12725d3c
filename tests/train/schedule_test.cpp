#include "smoe/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "smoe/train/budget_sampler.h"
#include "smoe/train/outlier_detector.h"

namespace smoe {
namespace {

ScheduleConfig make_schedule(ScheduleKind kind) {
  ScheduleConfig config;
  config.kind = kind;
  config.warmup_steps = 10;
  config.final_fraction = 0.1;
  config.decay_fraction = 0.25;
  return config;
}

TEST(Schedule, WarmsUpLinearlyFromZeroWhateverTheKind) {
  for (const auto& [kind, name] : EnumNames<ScheduleKind>::values) {
    const ScheduleConfig config = make_schedule(kind);
    EXPECT_EQ(schedule_multiplier(config, 0, 100), 0.0) << name;
    EXPECT_DOUBLE_EQ(schedule_multiplier(config, 3, 100), 0.3) << name;
    EXPECT_DOUBLE_EQ(schedule_multiplier(config, 10, 100), 1.0) << name;
  }
}

TEST(Schedule, CosineEndsAtTheFinalFraction) {
  const ScheduleConfig config = make_schedule(ScheduleKind::kCosine);
  EXPECT_DOUBLE_EQ(schedule_multiplier(config, 55, 100), 0.55);  // half-way: the mean of 1 and 0.1
  EXPECT_DOUBLE_EQ(schedule_multiplier(config, 100, 100), 0.1);
  for (int64_t step = 11; step <= 100; ++step) {
    EXPECT_LT(schedule_multiplier(config, step, 100), schedule_multiplier(config, step - 1, 100));
  }
}

TEST(Schedule, StableDecayIsFlatThenLinear) {
  const ScheduleConfig config = make_schedule(ScheduleKind::kWarmupStableDecay);
  EXPECT_EQ(schedule_multiplier(config, 75, 100), 1.0);
  EXPECT_NEAR(schedule_multiplier(config, 80, 100), 1.0 - 0.9 * 0.2, 1e-12);
  EXPECT_NEAR(schedule_multiplier(config, 100, 100), 0.1, 1e-12);
}

TEST(Schedule, InverseSquareRootHalvesWhenStepsQuadruple) {
  const ScheduleConfig config = make_schedule(ScheduleKind::kInverseSqrt);
  EXPECT_DOUBLE_EQ(schedule_multiplier(config, 40, 100), 0.5);
  EXPECT_EQ(schedule_multiplier(make_schedule(ScheduleKind::kConstant), 77, 100), 1.0);
}

TEST(Schedule, NeedsNoWarmUp) {
  ScheduleConfig config = make_schedule(ScheduleKind::kInverseSqrt);
  config.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(schedule_multiplier(config, 4, 100), 0.5);
  config.kind = ScheduleKind::kWarmupStableDecay;
  config.decay_fraction = 0.0;
  EXPECT_DOUBLE_EQ(schedule_multiplier(config, 99, 100), 1.0);
}

TEST(BudgetSampler, ReplicatesEverySequenceAtEveryBudget) {
  const BudgetSampler sampler(BudgetSampling::kReplicate, 3, 1);
  ASSERT_EQ(sampler.num_replicas(), 3);
  for (int64_t replica = 0; replica < 3; ++replica) EXPECT_EQ(sampler.budget(replica, 17, 5), replica);
}

TEST(BudgetSampler, CyclesOverTheGlobalOrder) {
  const BudgetSampler sampler(BudgetSampling::kCyclic, 3, 1);
  ASSERT_EQ(sampler.num_replicas(), 1);
  for (int64_t sample = 0; sample < 9; ++sample) EXPECT_EQ(sampler.budget(0, sample, 1), sample % 3);
}

TEST(BudgetSampler, RandomBudgetsAreEvenAndReproducible) {
  const BudgetSampler sampler(BudgetSampling::kRandom, 4, 7);
  const BudgetSampler again(BudgetSampling::kRandom, 4, 7);
  int counts[4] = {};
  for (int64_t sample = 0; sample < 4000; ++sample) {
    const int64_t budget = sampler.budget(0, sample, sample / 8);
    EXPECT_EQ(budget, again.budget(0, sample, sample / 8));
    ++counts[budget];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 120);
}

TEST(BudgetSampler, SandwichHasBothEndsAndOneBetween) {
  const BudgetSampler sampler(BudgetSampling::kSandwich, 5, 7);
  ASSERT_EQ(sampler.num_replicas(), 3);
  std::set<int64_t> between;
  for (int64_t sample = 0; sample < 100; ++sample) {
    EXPECT_EQ(sampler.budget(0, sample, 1), 0);
    EXPECT_EQ(sampler.budget(1, sample, 1), 4);
    between.insert(sampler.budget(2, sample, 1));
  }
  EXPECT_EQ(between, (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(BudgetSampler(BudgetSampling::kSandwich, 2, 7).num_replicas(), 2);
  EXPECT_EQ(BudgetSampler(BudgetSampling::kSandwich, 1, 7).num_replicas(), 1);
}

TEST(OutlierDetector, FindsASpikeOfEitherQuantity) {
  OutlierDetector detector(16, 6.0);
  for (int i = 0; i < 16; ++i) {
    EXPECT_FALSE(detector.is_outlier(2.0 + 0.01 * (i % 3), 1.0 + 0.02 * (i % 2)));
    detector.add(2.0 + 0.01 * (i % 3), 1.0 + 0.02 * (i % 2));
  }
  EXPECT_FALSE(detector.is_outlier(2.02, 1.02));
  EXPECT_TRUE(detector.is_outlier(3.0, 1.0));
  EXPECT_TRUE(detector.is_outlier(2.0, 9.0));
  EXPECT_FALSE(detector.is_outlier(0.1, 0.1)) << "only high values are outliers";
}

TEST(OutlierDetector, JudgesNothingBeforeHalfAWindow) {
  OutlierDetector detector(16, 1.0);
  for (int i = 0; i < 7; ++i) detector.add(1.0, 1.0);
  EXPECT_FALSE(detector.is_outlier(100.0, 100.0));
  detector.add(1.0, 1.0);
  EXPECT_TRUE(detector.is_outlier(100.0, 100.0));
}

TEST(OutlierDetector, AcceptsALevelThatHasShifted) {
  OutlierDetector detector(8, 3.0);
  for (int i = 0; i < 8; ++i) detector.add(1.0, 1.0);
  EXPECT_TRUE(detector.is_outlier(2.0, 1.0));
  for (int i = 0; i < 8; ++i) detector.add(2.0, 1.0);
  EXPECT_FALSE(detector.is_outlier(2.0, 1.0));
}

}  // namespace
}  // namespace smoe
