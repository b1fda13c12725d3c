#include "smoe/sweep/sweep_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smoe/sweep/sweep_runner.h"
#include "sweep_test_support.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

constexpr const char* kSweep =
    "seeds: [1, 3]\nrows:\n  - {name: long}\n"
    "  - {name: short, set: [model.routing.segment_length=4], rename_budgets: [2B=big]}\n"
    "evaluations:\n  - {name: core, tasks: [piqa]}\n"
    "metrics:\n  - {path: validation/mean/loss, label: loss}\n  - {path: core/piqa, label: PIQA}\n"
    "  - {path: core/both}\n  - {path: validation/also/bits_per_byte}\n  - {path: router/load_entropy}\n"
    "  - {path: cost/tokens}\n";

class SweepTables : public ::testing::Test {
 protected:
  SweepPlan finished_sweep() {
    testing::write_programs(folder_);
    const SweepPlan plan = plan_sweep(testing::write_sweep(folder_, kSweep), {});
    SweepRunOptions options;
    options.tools = folder_ / "bin";
    run_sweep(plan, options);
    return plan;
  }
  static const SweepCell& cell(const SweepTable& table, size_t row, const std::string& metric,
                               const std::string& budget) {
    for (size_t i = 0; i < table.columns.size(); ++i) {
      if (table.columns[i].metric == metric && table.columns[i].budget == budget)
        return table.rows[row].cells[i];
    }
    throw std::out_of_range(metric + " " + budget);
  }

  TemporaryFolder folder_;
};

// The program's losses of budget 1B are seed + 0.5 and seed + 0.7, those of 2B segment length + 0.25 and +
// 0.75.
TEST_F(SweepTables, CellsAreMeansOverSeedsAndSources) {
  const SweepTable table = collect_table(finished_sweep());
  ASSERT_EQ(table.rows.size(), 2U);
  const MeanAndSpread loss = mean_and_spread(cell(table, 0, "loss", "1B"));
  EXPECT_NEAR(loss.mean, (1.6 + 3.6) / 2.0, 1e-12);
  EXPECT_NEAR(loss.spread, std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(mean_and_spread(cell(table, 1, "loss", "big")).mean, 4.5, 1e-12);
  EXPECT_EQ(mean_and_spread(cell(table, 1, "loss", "big")).spread, 0.0);
  EXPECT_EQ(cell(table, 0, "PIQA", "2B").at(1), 0.625);
  EXPECT_EQ(cell(table, 0, "core/both", "1B").at(3), 0.25);
  EXPECT_EQ(cell(table, 0, "validation/also/bits_per_byte", "1B").at(1), 3.0);
  EXPECT_EQ(cell(table, 0, "router/load_entropy", "2B").at(1), 0.8);
  EXPECT_EQ(cell(table, 0, "cost/tokens", "1B").at(1), 10.0 * 4.0 * 16.0);
}

TEST_F(SweepTables, RenamedBudgetsHaveAColumnOfTheirOwn) {
  const SweepTable table = collect_table(finished_sweep());
  EXPECT_TRUE(cell(table, 0, "loss", "big").empty());
  EXPECT_TRUE(cell(table, 1, "loss", "2B").empty());
}

TEST_F(SweepTables, DifferencesArePairedBySeed) {
  const SweepCell reference = {{1, 10.0}, {2, 20.0}, {3, 30.0}};
  const SweepCell other = {{1, 11.0}, {2, 22.0}, {5, 1.0}};
  const auto difference = paired_difference(other, reference);
  ASSERT_TRUE(difference);
  EXPECT_DOUBLE_EQ(difference->mean, 1.5);
  EXPECT_NEAR(*difference->standard_error, std::sqrt(0.5) / std::sqrt(2.0), 1e-12);
  EXPECT_FALSE(paired_difference({{7, 1.0}}, reference));
  EXPECT_FALSE(paired_difference({{1, 1.0}}, reference)->standard_error);
}

TEST_F(SweepTables, WritesEveryFormat) {
  const SweepTable table = collect_table(finished_sweep());
  EXPECT_THAT(to_terminal(table, ""), HasSubstr("2.6000 ±1.4142"));
  EXPECT_THAT(to_terminal(table, "long"), HasSubstr("less long"));
  EXPECT_THAT(to_markdown(table, ""), HasSubstr("| 62.50 ±0.00 |"));
  EXPECT_THAT(to_latex(table, ""), HasSubstr("2.6000$\\pm$1.4142"));
  EXPECT_THAT(to_latex(table, ""), HasSubstr("validation/also/bits\\_per\\_byte"));
  EXPECT_THAT(to_csv(table), HasSubstr("row,metric,budget,seed,value\nlong,loss,1B,1,1.6\n"));
  EXPECT_THROW(to_terminal(table, "none"), ConfigError);
}

TEST_F(SweepTables, RunsThatAreNotFinishedLeaveHoles) {
  testing::write_programs(folder_);
  const SweepPlan plan = plan_sweep(testing::write_sweep(folder_, kSweep), {});
  SweepRunOptions options;
  options.tools = folder_ / "bin";
  options.only = {"long,seed=1"};
  run_sweep(plan, options);
  EXPECT_THAT(to_terminal(collect_table(plan), ""),
              HasSubstr("the finished ones of 2 seeds (1 to 1 a cell)"));
  const std::string text = to_csv(collect_table(plan));
  EXPECT_THAT(text, HasSubstr("long,"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("short,")));
}

TEST_F(SweepTables, ListsTheSourcesForAnUnknownOne) {
  const SweepPlan plan = finished_sweep();
  try {
    run_metric(plan, plan.runs[0], "validation/books/loss");
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no `books`, only [held, also]"));
  }
  EXPECT_THROW(run_metric(plan, plan.runs[0], "core/hellaswag"), DataError);
  EXPECT_THROW(run_metric(plan, plan.runs[0], "cost/euros"), DataError);
}

TEST_F(SweepTables, DrawsAPlotOfAnAxis) {
  if (std::system("command -v gnuplot >/dev/null") != 0) GTEST_SKIP() << "gnuplot is not installed";
  testing::write_programs(folder_);
  const SweepPlan plan = plan_sweep(
      testing::write_sweep(folder_, "axes:\n  - {key: model.routing.segment_length, values: [4, 8]}\n"), {});
  SweepRunOptions options;
  options.tools = folder_ / "bin";
  run_sweep(plan, options);
  plot_table(collect_table(plan), folder_ / "plot.svg");
  EXPECT_GT(std::filesystem::file_size(folder_ / "plot.svg"), 1000U);
}

}  // namespace
}  // namespace smoe
