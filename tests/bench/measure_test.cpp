#include "smoe/bench/measure.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "smoe/bench/bench_config.h"
#include "smoe/bench/speed_report.h"
#include "smoe/core/json.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;

TEST(Measure, ContestantsTakeTurnsAfterOneUnmeasuredRound) {
  std::string order;
  const std::vector<Samples> samples =
      measure_in_turns({{"a", [&] { order += 'a'; }}, {"b", [&] { order += 'b'; }}}, 3);
  EXPECT_EQ(order, "abababab");
  EXPECT_EQ(samples[0].all.size(), 3U);
}

TEST(Measure, PreparationComesBeforeEveryRunAndIsNotMeasured) {
  std::string order;
  const std::vector<Samples> samples =
      measure_in_turns({{"a", [&] { order += 'a'; },
                         [&] {
                           order += 'p';
                           std::this_thread::sleep_for(std::chrono::milliseconds(50));
                         }}},
                       1);
  EXPECT_EQ(order, "papa");
  EXPECT_LT(samples[0].median().wall_s, 0.04);
}

TEST(Measure, WaitingIsTimeOnTheWallOnly) {
  const Duration duration = measure_once([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  EXPECT_GE(duration.wall_s, 0.05);
  EXPECT_LT(duration.core_s, 0.04);
}

TEST(Measure, BestAndMedianAreTakenOfEachClock) {
  const Samples samples{{{3, 10}, {1, 30}, {2, 20}}};
  EXPECT_EQ(samples.best().wall_s, 1);
  EXPECT_EQ(samples.best().core_s, 10);
  EXPECT_EQ(samples.median().wall_s, 2);
  EXPECT_EQ(samples.median().core_s, 20);
}

TEST(BenchConfig, TheShippedCasesHaveTheirStatedWork) {
  for (const auto& [name, gflop] : {std::pair("tiny", 543.0), std::pair("small", 2013.0)}) {
    const auto config =
        read_config<BenchConfig>({fmt::format("{}/configs/bench/{}.yaml", SMOE_SOURCE_DIR, name), {}});
    double flops = 0;
    for (int64_t budget = 0; budget < std::ssize(config.model.budgets); ++budget) {
      flops += 3 * forward_flops(config, budget);
    }
    EXPECT_NEAR(flops * 1e-9, gflop, 0.01 * gflop) << name;
  }
}

SpeedReport two_rows() {
  SpeedReport report;
  report.peak = {200.0, 100.0};
  report.num_threads = 2;
  SpeedRow row;
  row.bench = "train";
  row.name = "smoe";
  row.useful_flops = 120;
  row.samples.all = {{1, 2}};
  report.rows.push_back(row);
  row.name = "other";
  row.samples.all = {{2, 3}};
  report.rows.push_back(row);
  return report;
}

TEST(SpeedReport, ComparesCostsOfDifferentWorkByTheFlop) {
  SpeedReport report = two_rows();
  report.rows[1].useful_flops = 240;
  EXPECT_EQ(cost_per_flop(report, report.rows[1]), 0.75);
  report.rows[0].useful_flops = 0;
  EXPECT_EQ(cost_per_flop(report, report.rows[1]), 0);
}

TEST(SpeedReport, SetsRowsInRelationToTheFirstAndToThePeak) {
  const std::string lines = speed_json_lines(two_rows());
  const nlohmann::json second = parse_json(lines.substr(lines.find('\n') + 1), "second line");
  EXPECT_EQ(second["times_first_wall"], 2.0);
  EXPECT_EQ(second["times_first_core"], 1.5);
  EXPECT_DOUBLE_EQ(second["share_of_peak_core"].get<double>(), 0.4);
  EXPECT_DOUBLE_EQ(second["share_of_peak_wall"].get<double>(), 0.3);
  EXPECT_THAT(speed_table(two_rows()), HasSubstr("60.0%"));
}

}  // namespace
}  // namespace smoe
