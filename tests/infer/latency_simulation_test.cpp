#include "smoe/infer/latency_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smoe/core/error.h"
#include "smoe/infer/latency_study.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

// Two layers; whole numbers, so that the schedule can be drawn on paper.
DecodeCosts small_costs() {
  DecodeCosts costs;
  costs.num_moe_layers = 2;
  costs.backbone_s = 3;
  costs.attention_s = 1;
  costs.experts_s = 2;
  costs.head_s = 1;
  costs.load_s = 5;
  return costs;
}

TEST(SimulateDecode, OverlapsTheLoadsOfLaterLayersWithEarlierOnes) {
  // processor: backbone 0-3, attention 3-4, wait for load 1 (3-8), experts 8-10, attention 10-11, wait for
  // load 2 (8-13), experts 13-15, head 15-16. The second token of the segment loads nothing: 10.
  const DecodeTimes times =
      simulate_decode(small_costs(), {ExpertLoading::kPerSegment, /*segment_length=*/2, 0.0, 0, 2});
  EXPECT_THAT(times.token_s, ::testing::ElementsAre(16, 10));
  EXPECT_DOUBLE_EQ(times.stall_s, 4 + 2);
}

TEST(SimulateDecode, ExposesEveryLoadOfAVanillaModel) {
  // backbone 0-3; per layer attention, load, experts: 1 + 5 + 2; head.
  const DecodeTimes times = simulate_decode(small_costs(), {ExpertLoading::kPerToken, 32, 0.0, 0, 3});
  EXPECT_THAT(times.token_s, ::testing::Each(3 + 2 * 8 + 1));
  EXPECT_DOUBLE_EQ(times.stall_s, 3 * 10);
}

TEST(SimulateDecode, HidesLoadsThatAreShorterThanTheLayersBefore) {
  DecodeCosts costs = small_costs();
  costs.load_s = 1;
  // Loads end at 4 and 5; attention of layer 1 ends at 4: no stall at all.
  const DecodeTimes times = simulate_decode(costs, {ExpertLoading::kPerSegment, 1, 0.0, 0, 1});
  EXPECT_DOUBLE_EQ(times.token_s[0], 10);
  EXPECT_DOUBLE_EQ(times.stall_s, 0);
}

TEST(SimulateDecode, CountsHitsAndContext) {
  DecodeCosts costs = small_costs();
  costs.context_attention_s = 0.5;
  costs.context_backbone_s = 0.25;
  const DecodeTimes times = simulate_decode(costs, {ExpertLoading::kPerToken, 32, 1.0, 4, 2});
  EXPECT_THAT(times.token_s, ::testing::ElementsAre(10 + 4 * 1.25, 10 + 5 * 1.25));
}

// The 12B model of the paper on the example device: 60 GB/s memory, 3 GB/s storage, 4-bit weights.
class PhoneTest : public ::testing::Test {
 protected:
  double ms(const std::string& line, double hit_rate) const {
    for (const LatencyRow& row : rows) {
      if (row.line == line && std::abs(row.hit_rate - hit_rate) < 1e-9) return row.ms_per_token;
    }
    ADD_FAILURE() << line;
    return 0;
  }

  ModelConfig config =
      read_model_config({std::string(SMOE_SOURCE_DIR) + "/configs/paper/flexible_12b.yaml", {}});
  LatencyHardware hardware =
      read_config<LatencyHardware>({std::string(SMOE_SOURCE_DIR) + "/configs/hardware/phone.yaml", {}});
  LatencyStudyOptions options = [] {
    LatencyStudyOptions chosen;
    chosen.budget = "3B";
    chosen.hit_rates = {0.0, 0.2, 0.4, 0.6};
    chosen.decode_tokens = {64};
    chosen.segment_lengths = {16, 32, 64};
    return chosen;
  }();
  std::vector<LatencyRow> rows = run_latency_study(config, hardware, options);
};

TEST_F(PhoneTest, AgreesWithTheNumbersWorkedOutByHand) {
  // 43 experts of 1.18M weights in 44 layers at half a byte: 1.116 GB, 372 ms from storage. A token
  // reads 3.1G weights with the head: 26 ms.
  EXPECT_NEAR(ms("vanilla 3B", 0.0), 398, 0.02 * 398);
  EXPECT_NEAR(ms("vanilla 3B", 0.2), 324, 0.02 * 324);
  EXPECT_NEAR(ms("vanilla 3B", 0.6), 175, 0.02 * 175);
  EXPECT_NEAR(ms("stepped 3B S=32", 0.0), 37.2, 0.03 * 37.2);
  EXPECT_NEAR(ms("stepped 3B S=32", 0.6), 30.2, 0.03 * 30.2);
  EXPECT_NEAR(ms("stepped 3B S=16", 0.0), 48.2, 0.03 * 48.2);
  EXPECT_NEAR(ms("stepped 3B S=64", 0.6), 28.2, 0.03 * 28.2);
  EXPECT_NEAR(ms("dense 3B", 0.0), 25 + 1.3, 0.03 * 26.3);
  EXPECT_NEAR(ms("dense 6B", 0.0), 50 + 1.3, 0.03 * 51.3);
}

TEST_F(PhoneTest, ReproducesTheOrderOfThePaper) {
  for (const double rate : options.hit_rates) {
    EXPECT_GT(ms("vanilla 3B", rate), 3 * ms("dense 6B", rate));
    EXPECT_LT(ms("stepped 3B S=32", rate), ms("dense 6B", rate));
    EXPECT_GT(ms("stepped 3B S=16", rate), ms("stepped 3B S=32", rate));
    EXPECT_GT(ms("stepped 3B S=32", rate), ms("stepped 3B S=64", rate));
    EXPECT_GT(ms("stepped 3B S=64", rate), ms("dense 3B", rate));
  }
  EXPECT_LT(ms("stepped 3B S=32", 0.4), ms("dense 4B", 0.4));
}

TEST_F(PhoneTest, WritesOneCsvLineForEveryPoint) {
  const std::string csv = latency_csv(rows);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 1 + std::ssize(rows));
  EXPECT_EQ(std::ssize(rows), (6 + 1 + 3) * 4);
  const testing::TemporaryFolder folder;
  plot_latency(rows, {folder / "plot.svg", "A \"title\"", 0.4, 64});
  EXPECT_GT(std::filesystem::file_size(folder / "plot.svg"), 5000U);
}

TEST_F(PhoneTest, RefusesToPlotWhatIsNotSimulated) {
  const testing::TemporaryFolder folder;
  const auto problem = [&](double hit_rate, int64_t tokens) -> std::string {
    try {
      plot_latency(rows, {folder / "plot.svg", "title", hit_rate, tokens});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(problem(0.35, 64).find("hit rate 0.35"), std::string::npos);
  EXPECT_NE(problem(0.35, 64).find("--plot-hit-rate"), std::string::npos);
  EXPECT_NE(problem(0.4, 1024).find("--plot-tokens"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "plot.svg"));
}

TEST_F(PhoneTest, RefusesOptionsOutOfRange) {
  options.hit_rates = {1.5};
  EXPECT_THROW(run_latency_study(config, hardware, options), ConfigError);
  config.architecture = Architecture::kDense;
  EXPECT_THROW(run_latency_study(config, hardware, {}), ConfigError);
}

}  // namespace
}  // namespace smoe
