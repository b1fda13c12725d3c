#include "smoe/train/compute_account.h"

#include <gtest/gtest.h>

namespace smoe {
namespace {

TrainConfig paper_config(const std::string& name) {
  return read_config<TrainConfig>({std::string(SMOE_SOURCE_DIR) + "/configs/paper/" + name, {}});
}

// Two static models of 1B and 3B on a trillion tokens each cost 6e21 and 18e21 FLOPs.
TEST(ComputeAccount, GivesThePapersNormalisation) {
  const double small = account_compute(paper_config("static_1b.yaml")).flops_6nt();
  const double large = account_compute(paper_config("static_3b.yaml")).flops_6nt();
  EXPECT_NEAR(small / 6e21, 1.0, 0.02);
  EXPECT_NEAR(large / 18e21, 1.0, 0.02);
  EXPECT_NEAR((small + large) / 24e21, 1.0, 0.02);
}

TEST(ComputeAccount, AFlexibleModelCostsTheSumOfItsBudgets) {
  const ComputeAccount account = account_compute(paper_config("flexible_12b.yaml"));
  ASSERT_EQ(account.budgets.size(), 4U);
  EXPECT_NEAR(account.flops_6nt() / 60e21, 1.0, 0.02);  // 1 + 2 + 3 + 4 = 10 billion parameters
  EXPECT_NEAR(account.tokens() / 4e12, 1.0, 1e-3);
  // Attention scores and the output head come on top of 6NT.
  for (const BudgetCompute& budget : account.budgets) EXPECT_GT(budget.flops_exact, budget.flops_6nt);
}

TEST(ComputeAccount, DrawnBudgetsShareTheTokens) {
  TrainConfig config = paper_config("flexible_12b.yaml");
  const double unique = account_compute(config).budgets[0].tokens;
  config.budget_sampling = BudgetSampling::kCyclic;
  EXPECT_DOUBLE_EQ(account_compute(config).tokens(), unique);
  config.budget_sampling = BudgetSampling::kSandwich;
  const ComputeAccount sandwich = account_compute(config);
  EXPECT_DOUBLE_EQ(sandwich.budgets[0].tokens, unique);
  EXPECT_DOUBLE_EQ(sandwich.budgets[1].tokens, unique / 2.0);
  EXPECT_DOUBLE_EQ(sandwich.budgets[3].tokens, unique);
}

}  // namespace
}  // namespace smoe
