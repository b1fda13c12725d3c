#include "smoe/bench/scaling_bench.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/bench_test_support.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ScalingPoints, FollowTheConfig) {
  BenchConfig config = small_bench_config();
  config.model.num_experts = 32;
  config.model.budgets = {{"one", 20}};
  config.bench = {4, 512};
  EXPECT_THAT(scaling_points(config, ScalingAxis::kBudget, 1), ElementsAre(4, 8, 16, 24, 32));
  EXPECT_THAT(scaling_points(config, ScalingAxis::kExperts, 1),
              ElementsAre(32, 64, 128));  // not fewer than k
  EXPECT_THAT(scaling_points(config, ScalingAxis::kSegmentLength, 1), ElementsAre(8, 16, 32, 64, 128));
  EXPECT_THAT(scaling_points(config, ScalingAxis::kLength, 1), ElementsAre(128, 256, 512, 1024, 2048));
  EXPECT_THAT(scaling_points(config, ScalingAxis::kBatch, 1), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(scaling_points(config, ScalingAxis::kThreads, 5), ElementsAre(1, 2, 4));
  config.bench = {1, 60};
  EXPECT_THAT(scaling_points(config, ScalingAxis::kLength, 1), ElementsAre(60));
  EXPECT_THAT(scaling_points(config, ScalingAxis::kBatch, 1), ElementsAre(1, 2));
  EXPECT_THAT(scaling_points(config, ScalingAxis::kSegmentLength, 1), ElementsAre(8, 16, 32));
}

const SpeedRow& find_row(const SpeedReport& report, const std::string& axis, const std::string& value,
                         const std::string& name) {
  for (const SpeedRow& row : report.rows) {
    if (row.labels.at("axis") == axis && row.labels.at("value") == value && row.name == name) return row;
  }
  throw std::runtime_error("no row " + axis + " " + value + " " + name);
}

TEST(ScalingBench, CountsTheWorkOfEveryPointAndKeepsTheThreads) {
  const int threads = at::get_num_threads();
  ScalingBenchOptions options;
  options.config = small_bench_config();
  options.budget = "small";
  options.max_threads = 1;
  options.repetitions = 1;
  options.measure_peak = false;
  const SpeedReport report = run_scaling_bench(options);
  EXPECT_EQ(at::get_num_threads(), threads);
  // The routed experts of a step take 3 * 6 * N * k * D * h FLOPs a layer.
  const double at_2 = find_row(report, "k", "1", "first").useful_flops;
  const double more = find_row(report, "k", "6", "step").useful_flops - at_2;
  EXPECT_NEAR(more, 2.0 * 18 * 64 * 5 * 16 * 4, 1e-6 * more);
  EXPECT_EQ(find_row(report, "batch", "4", "step").unique_tokens, 128);
  EXPECT_EQ(find_row(report, "batch", "4", "first").unique_tokens, 32);
  // More experts are more parameters, but no more work than their logits.
  const double few = find_row(report, "E", "3", "step").useful_flops;
  EXPECT_LT(find_row(report, "E", "24", "step").useful_flops, 1.1 * few);
  EXPECT_EQ(find_row(report, "E", "24", "optimizer").useful_flops, 0);
  EXPECT_THAT(scaling_tables(report), AllOf(HasSubstr("length"), HasSubstr("optimizer core ms")));
}

TEST(ScalingBench, RefusesModelsWithoutBudgets) {
  ScalingBenchOptions options;
  options.config = small_bench_config();
  options.config.model.architecture = Architecture::kDense;
  try {
    run_scaling_bench(options);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("stepped_moe"), HasSubstr("dense")));
  }
}

}  // namespace
}  // namespace smoe
