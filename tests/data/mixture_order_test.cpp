#include "smoe/data/mixture_order.h"

#include <cmath>
#include <numeric>

#include "data_test_support.h"

namespace smoe {
namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<double> kWeights = {0.5, 3.0, 0.011, 1.489, 2.0};
const std::vector<std::string> kNames = {"a", "b", "c", "d", "e"};

TEST(MixtureOrder, ReadsEverySourceInOrderWithoutGaps) {
  const MixtureOrder order(kWeights, kNames, 3);
  std::vector<int64_t> next(kWeights.size(), 0);
  for (const MixtureSample& sample : order.samples(0, MixtureOrder::kPeriod + 5000)) {
    ASSERT_EQ(sample.index, next[sample.source]++);
  }
}

TEST(MixtureOrder, HoldsItsSharesExactlyInEveryPeriod) {
  const MixtureOrder order(kWeights, kNames, 3);
  const std::vector<int64_t> shares = order.shares();
  EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}), MixtureOrder::kPeriod);
  std::vector<int64_t> counts(kWeights.size(), 0);
  for (const MixtureSample& sample : order.samples(7 * MixtureOrder::kPeriod, MixtureOrder::kPeriod)) {
    ++counts[sample.source];
  }
  EXPECT_EQ(counts, shares);
  for (size_t s = 0; s < shares.size(); ++s) {
    EXPECT_NEAR(double(shares[s]), kWeights[s] / 7.0 * MixtureOrder::kPeriod, 1.0);
  }
}

TEST(MixtureOrder, StaysCloseToTheWeightsAtEveryBlock) {
  const MixtureOrder order(kWeights, kNames, 3);
  const std::vector<int64_t> shares = order.shares();
  std::vector<int64_t> counts(kWeights.size(), 0);
  for (int64_t block = 0; block < MixtureOrder::kBlock; ++block) {
    std::vector<int64_t> before = counts;
    for (const MixtureSample& sample : order.samples(block * MixtureOrder::kBlock, MixtureOrder::kBlock)) {
      ++counts[sample.source];
    }
    for (size_t s = 0; s < counts.size(); ++s) {
      const double share = double(shares[s]) / MixtureOrder::kPeriod;
      ASSERT_LE(std::abs(double(counts[s] - before[s]) - share * MixtureOrder::kBlock), 1.0);
      ASSERT_LE(std::abs(double(counts[s]) - share * double((block + 1) * MixtureOrder::kBlock)), 5.0);
    }
  }
}

TEST(MixtureOrder, IsTheSameHoweverItIsCut) {
  const MixtureOrder order(kWeights, kNames, 3);
  const std::vector<MixtureSample> whole = order.samples(1'000'000, 3000);
  std::vector<MixtureSample> pieces;
  for (int64_t at = 0, size = 1; at < 3000; at += size, size = size % 97 + 1) {
    const auto piece = order.samples(1'000'000 + at, std::min<int64_t>(size, 3000 - at));
    pieces.insert(pieces.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(pieces, whole);
}

TEST(MixtureOrder, DependsOnTheSeedAndDoesNotRepeatItsBlocks) {
  const auto sources = [](uint64_t seed, int64_t position) {
    std::vector<int64_t> result;
    for (const MixtureSample& sample : MixtureOrder({1, 1}, {"a", "b"}, seed).samples(position, 1024)) {
      result.push_back(sample.source);
    }
    return result;
  };
  EXPECT_EQ(sources(1, 0), sources(1, 0));
  EXPECT_NE(sources(1, 0), sources(2, 0));
  EXPECT_NE(sources(1, 0), sources(1, 1024));
  EXPECT_NE(sources(1, 0), sources(1, MixtureOrder::kPeriod));
}

// With budgets dealt by position (i mod n), a source must not always meet the same budget.
TEST(MixtureOrder, DoesNotTieASourceToAResidue) {
  int64_t even = 0;
  for (int64_t i = 0; const MixtureSample& sample : MixtureOrder({1, 1}, {"a", "b"}, 5).samples(0, 8192)) {
    even += i++ % 2 == 0 && sample.source == 0 ? 1 : 0;
  }
  EXPECT_NEAR(double(even), 2048.0, 150.0);
}

TEST(MixtureOrder, ReachesFarPositions) {
  const MixtureOrder order({1, 3}, {"a", "b"}, 1);
  const int64_t far = int64_t{1} << 50;
  const std::vector<MixtureSample> samples = order.samples(far, 1024);
  EXPECT_NEAR(double(samples.back().index + 1),
              (samples.back().source == 0 ? 0.25 : 0.75) * double(far + 1024), 300.0);
}

TEST(MixtureOrder, GivesASingleSourceEverything) {
  EXPECT_THAT(MixtureOrder({0.3}, {"a"}, 1).shares(), ElementsAre(MixtureOrder::kPeriod));
}

TEST(MixtureOrder, RefusesAWeightTooSmallToBeRead) {
  EXPECT_THAT(error_of<ConfigError>([] {
                MixtureOrder({1.0, 1e-8}, {"big", "tiny"}, 1);
              }),
              HasSubstr("source 'tiny': weight 1e-08"));
}

}  // namespace
}  // namespace smoe
