#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "smoe/train/compute_account.h"
#include "sweep_test_support.h"

namespace smoe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_sweep;

std::string error_of(const std::filesystem::path& file) {
  try {
    plan_sweep(file, {});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(SweepPlan, RunsAreRowsTimesAxesTimesSeeds) {
  const TemporaryFolder folder;
  const SweepPlan plan = plan_sweep(
      write_sweep(folder,
                  "seeds: [1, 7]\n"
                  "axes:\n  - {key: model.routing.segment_length, values: [4, 8]}\n"
                  "rows:\n  - {name: weighted}\n  - {name: even, set: [loss.budget_weight_power=0]}\n"),
      {});
  std::vector<std::string> names;
  for (const PlannedRun& run : plan.runs) names.push_back(run.name);
  EXPECT_THAT(names, ElementsAre("weighted,segment_length=4,seed=1", "weighted,segment_length=4,seed=7",
                                 "weighted,segment_length=8,seed=1", "weighted,segment_length=8,seed=7",
                                 "even,segment_length=4,seed=1", "even,segment_length=4,seed=7",
                                 "even,segment_length=8,seed=1", "even,segment_length=8,seed=7"));
  const PlannedRun& last = plan.runs.back();
  EXPECT_EQ(last.config.model.routing.segment_length, 8);
  EXPECT_EQ(last.config.loss.budget_weight_power, 0.0);
  EXPECT_EQ(last.config.seed, 7);
  EXPECT_EQ(last.config.data.seed, 7);
  EXPECT_EQ(last.row_name, "even,segment_length=8");
  EXPECT_THAT(last.config.run_folder, HasSubstr("sweep/runs/even,segment_length=8,seed=7"));
}

TEST(SweepPlan, RowsOverrideTheSweepAndAxesOverrideRows) {
  const TemporaryFolder folder;
  const SweepPlan plan =
      plan_sweep(write_sweep(folder,
                             "set: [steps=20, batch_size=6]\n"
                             "axes:\n  - {key: micro_batch_size, values: [1]}\n"
                             "rows:\n  - {name: a, set: [steps=30, micro_batch_size=3]}\n"),
                 {});
  EXPECT_EQ(plan.runs[0].config.steps, 30);
  EXPECT_EQ(plan.runs[0].config.batch_size, 6);
  EXPECT_EQ(plan.runs[0].config.micro_batch_size, 1);
}

TEST(SweepPlan, ListValuesTakeLabels) {
  const TemporaryFolder folder;
  const SweepPlan plan = plan_sweep(
      write_sweep(folder,
                  "axes:\n"
                  "  - key: model.budgets\n"
                  "    values: ['[{name: 1B, experts_per_layer: 1}]', '[{name: 2B, experts_per_layer: 3}]']\n"
                  "    labels: [small, large]\n"
                  "    name: size\n"),
      {});
  EXPECT_EQ(plan.runs[1].name, "size=large,seed=1");
  ASSERT_EQ(plan.runs[1].config.model.budgets.size(), 1U);
  EXPECT_EQ(plan.runs[1].config.model.budgets[0].experts_per_layer, 3);
}

TEST(SweepPlan, ListsDifferencesFromTheBase) {
  const TemporaryFolder folder;
  const std::string text = describe_plan(
      plan_sweep(write_sweep(folder, "rows:\n  - {name: a}\n  - {name: b, set: [steps=30]}\n"), {}));
  EXPECT_THAT(text, HasSubstr("a (1 seeds)\n  as the base\n"));
  EXPECT_THAT(text, HasSubstr("steps: 10 -> 30"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("run_folder")));
}

TEST(SweepPlan, ReportsTheMistakesOfAllRowsAtOnce) {
  const TemporaryFolder folder;
  const std::string message = error_of(write_sweep(folder,
                                                   "seeds: [1, 2]\nrows:\n  - {name: a, set: [stepz=1]}\n"
                                                   "  - {name: fine}\n  - {name: c, set: [batch_size=0]}\n"));
  EXPECT_THAT(message, HasSubstr("nothing was started"));
  EXPECT_THAT(message, HasSubstr("stepz"));
  EXPECT_THAT(message, HasSubstr("steps"));  // the nearest key
  EXPECT_THAT(message, HasSubstr("batch_size"));
  EXPECT_THAT(message, HasSubstr("\na: "));
  EXPECT_EQ(message.find("\na: "), message.rfind("\na: ")) << "one report a row, not one a seed";
}

TEST(SweepPlan, RefusesNamesThatCollideOrAreNoFolders) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(write_sweep(folder, "rows:\n  - {name: a}\n  - {name: a}\n")),
              HasSubstr("`a` is there twice"));
  EXPECT_THAT(error_of(write_sweep(folder, "rows:\n  - {name: a/b}\n")), HasSubstr("`a/b`"));
  EXPECT_THAT(error_of(write_sweep(folder, "axes:\n  - {key: steps, values: [1, 1]}\n")),
              HasSubstr("two runs are called"));
  EXPECT_THAT(error_of(write_sweep(folder, "axes:\n  - {key: data.tokenizer, values: [a/b]}\n")),
              HasSubstr("give `labels`"));
  EXPECT_THAT(error_of(write_sweep(folder, "seeds: [3, 3]\n")), HasSubstr("seeds"));
}

TEST(SweepPlan, RefusesMetricsOfUnknownKinds) {
  const TemporaryFolder folder;
  const std::string message = error_of(
      write_sweep(folder, "evaluations:\n  - {name: core, tasks: [piqa]}\nmetrics:\n  - {path: cor/piqa}\n"));
  EXPECT_THAT(message, HasSubstr("`cor/piqa` is no metric"));
  EXPECT_THAT(message, HasSubstr("[core]"));
}

TEST(SweepPlan, NeedsABase) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(folder.write("sweep.yaml", "folder: x\n")), HasSubstr("base"));
  EXPECT_THAT(error_of(folder.write("sweep.yaml", "folder: x\nbase: missing.yaml\n")),
              HasSubstr("missing.yaml"));
}

// Relative paths in the sweeps start at the source folder, but nothing is opened here.
TEST(SweepPlan, EverySweepThatComesAlongIsValid) {
  int64_t count = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(SMOE_SOURCE_DIR) + "/configs/sweeps")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    ++count;
    SweepPlan plan;
    ASSERT_NO_THROW(plan = plan_sweep(entry.path(), {}));
    // Equal active sizes are what rows of one column are compared at. The routers of a vanilla MoE, active at
    // every token, are up to 3.3 % of the smallest models.
    std::map<std::string, double> active;
    for (const PlannedRun& run : plan.runs) {
      if (run.config.model.num_shared_experts != 1) continue;
      for (const BudgetCompute& budget : account_compute(run.config).budgets) {
        std::string column = budget.name;
        if (!plan.config.rows.empty()) {
          for (const std::string& rename : plan.config.rows[run.row].rename_budgets) {
            if (rename.starts_with(column + "=")) column = rename.substr(column.size() + 1);
          }
        }
        const double first = active.emplace(column, budget.active).first->second;
        const bool has_token_routers = run.config.model.architecture == Architecture::kVanillaMoe;
        EXPECT_NEAR(budget.active / first, 1.0, has_token_routers ? 0.035 : 0.03)
            << run.name << " in column " << column;
      }
    }
  }
  EXPECT_GE(count, 20);
}

}  // namespace
}  // namespace smoe
