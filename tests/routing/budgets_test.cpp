#include "smoe/routing/budgets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smoe/core/error.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;

const std::vector<BudgetConfig> kPaper = {{"1B", 5}, {"2B", 24}, {"3B", 43}, {"4B", 63}};

TEST(Budgets, AreFoundByNameAndByCount) {
  EXPECT_EQ(find_budget(kPaper, "1B"), 0);
  EXPECT_EQ(find_budget(kPaper, "4B"), 3);
  EXPECT_EQ(find_budget(kPaper, "43"), 2);
}

TEST(Budgets, NameWinsOverCount) { EXPECT_EQ(find_budget({{"a", 8}, {"8", 16}}, "8"), 1); }

TEST(Budgets, UnknownBudgetListsAllBudgets) {
  for (const std::string text : {"5B", "44", "43x", "", "-1"}) {
    try {
      find_budget(kPaper, text);
      ADD_FAILURE() << "'" << text << "' was accepted";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("'" + text + "'"));
      EXPECT_THAT(error.what(), HasSubstr("1B (k = 5), 2B (k = 24), 3B (k = 43), 4B (k = 63)"));
    }
  }
}

TEST(BudgetLossWeights, FollowThePowerWithMeanOne) {
  // Computed by hand: k / 33.75 for the budgets 5, 24, 43, 63.
  const std::vector<double> linear = budget_loss_weights(kPaper, 1.0);
  const double expected[] = {5 / 33.75, 24 / 33.75, 43 / 33.75, 63 / 33.75};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(linear[i], expected[i], 1e-14);
  const std::vector<double> root = budget_loss_weights(kPaper, 0.5);
  const double expected_root[] = {0.414, 0.906, 1.213, 1.468};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(root[i], expected_root[i], 5e-4);
}

TEST(BudgetLossWeights, PowerZeroIsOneEvenForAnEmptyBudget) {
  EXPECT_EQ(budget_loss_weights({{"none", 0}, {"some", 7}}, 0.0), (std::vector<double>{1.0, 1.0}));
}

TEST(BudgetLossWeights, RejectAnEmptyBudgetWithAPower) {
  try {
    budget_loss_weights({{"none", 0}, {"some", 7}}, 1.0);
    FAIL() << "k = 0 was accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'none'"));
    EXPECT_THAT(error.what(), HasSubstr("power to 0"));
  }
}

}  // namespace
}  // namespace smoe
