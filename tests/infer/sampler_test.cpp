#include "smoe/infer/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "smoe/core/error.h"

namespace smoe {
namespace {

std::vector<float> random_logits(size_t size, uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = static_cast<float>(6 * random.uniform() - 3);
  return logits;
}

// The definition with whole sorts and probabilities: token and probability of what is kept.
std::map<int32_t, double> naive_distribution(const std::vector<float>& logits, const SamplingConfig& config) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (config.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(config.top_k)));
  const auto normalized = [&] {
    double sum = 0;
    for (const int32_t token : order) sum += std::exp(logits[token] / config.temperature);
    std::vector<double> probabilities;
    for (const int32_t token : order) {
      probabilities.push_back(std::exp(logits[token] / config.temperature) / sum);
    }
    return probabilities;
  };
  std::vector<double> probabilities = normalized();
  double before = 0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || before < config.top_p)) before += probabilities[count++];
  order.resize(count);
  probabilities = normalized();
  while (probabilities.back() < config.min_p * probabilities.front()) probabilities.pop_back();
  order.resize(probabilities.size());
  probabilities = normalized();
  std::map<int32_t, double> result;
  for (size_t i = 0; i < order.size(); ++i) result[order[i]] = probabilities[i];
  return result;
}

const std::vector<SamplingConfig> kConfigs = {
    {1.0, 0, 1.0, 0.0, 1},  {0.7, 5, 1.0, 0.0, 2},    {1.3, 0, 0.8, 0.0, 3}, {1.0, 0, 1.0, 0.1, 4},
    {0.9, 12, 0.6, 0.0, 5}, {1.1, 20, 0.95, 0.2, 6},  {1.0, 1, 1.0, 0.0, 7}, {1.0, 0, 0.01, 0.0, 8},
    {2.0, 0, 1.0, 1.0, 9},  {0.5, 100, 0.9, 0.05, 10}};

TEST(Sampler, FiltersKeepWhatTheDefinitionKeeps) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<float> logits = random_logits(50, seed);
    for (const SamplingConfig& config : kConfigs) {
      Sampler sampler(config);
      const std::vector<Sampler::Candidate>& kept = sampler.candidates(logits);
      double total = 0;
      for (const Sampler::Candidate& candidate : kept) total += candidate.weight;
      const std::map<int32_t, double> expected = naive_distribution(logits, config);
      ASSERT_EQ(kept.size(), expected.size()) << "config " << config.seed;
      for (const Sampler::Candidate& candidate : kept) {
        ASSERT_TRUE(expected.contains(candidate.token));
        EXPECT_NEAR(candidate.weight / total, expected.at(candidate.token), 1e-6);
      }
    }
  }
}

TEST(Sampler, DrawsFromTheDistribution) {
  constexpr int kDraws = 20000;
  const std::vector<float> logits = random_logits(12, 99);
  for (const SamplingConfig& config : kConfigs) {
    const std::map<int32_t, double> expected = naive_distribution(logits, config);
    Sampler sampler(config);
    std::map<int32_t, int> counts;
    for (int i = 0; i < kDraws; ++i) ++counts[sampler.sample(logits)];
    double chi_square = 0;
    for (const auto& [token, probability] : expected) {
      chi_square += std::pow(counts[token] - kDraws * probability, 2) / (kDraws * probability);
    }
    for (const auto& [token, count] : counts) EXPECT_TRUE(expected.contains(token)) << token;
    // 99.9% quantile for at most 11 degrees of freedom.
    EXPECT_LT(chi_square, 31.3) << "config " << config.seed;
  }
}

TEST(Sampler, GreedyTakesTheLowestOfEqualLogits) {
  Sampler sampler({.temperature = 0});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-5, -5}), 0);
}

TEST(Sampler, TopKOfEqualLogitsKeepsTheLowestTokens) {
  Sampler sampler({.top_k = 2});
  const auto& kept = sampler.candidates(std::vector<float>{1, 1, 1, 0});
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].token, 0);
  EXPECT_EQ(kept[1].token, 1);
}

TEST(Sampler, NeverDrawsAForbiddenToken) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {-infinity, 0, -infinity, 1};
  Sampler sampler({.temperature = 5});
  for (int i = 0; i < 1000; ++i) {
    const int32_t token = sampler.sample(logits);
    EXPECT_TRUE(token == 1 || token == 3);
  }
}

TEST(Sampler, SeedsGiveTheirOwnReproducibleSequences) {
  const std::vector<float> logits = random_logits(40, 5);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<int32_t> tokens;
    for (int i = 0; i < 20; ++i) tokens.push_back(sampler.sample(logits));
    return tokens;
  };
  EXPECT_EQ(draw(3), draw(3));
  std::set<std::vector<int32_t>> sequences;
  for (uint64_t seed = 0; seed < 10; ++seed) sequences.insert(draw(seed));
  EXPECT_EQ(sequences.size(), 10u);
}

TEST(Sampler, LogprobsAreThoseOfTheSoftmax) {
  const std::vector<float> logits = {0.0F, std::log(2.0F), std::log(5.0F)};
  EXPECT_NEAR(token_logprob(logits, 2), std::log(5.0 / 8), 1e-7);
}

TEST(Sampler, RefusesBrokenLogitsAndSettings) {
  Sampler sampler({});
  EXPECT_THROW(sampler.sample(std::vector<float>{0, std::nanf("")}), NumericError);
  EXPECT_THROW(sampler.sample(std::vector<float>{0, std::numeric_limits<float>::infinity()}), NumericError);
  for (const SamplingConfig& config : std::vector<SamplingConfig>{
           {.temperature = -1}, {.top_k = -1}, {.top_p = 0}, {.top_p = 1.5}, {.min_p = -0.1}, {.min_p = 2}}) {
    EXPECT_THROW(Sampler{config}, ConfigError);
  }
  try {
    Sampler({.top_p = 1.5});
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("top_p is 1.5"));
  }
}

}  // namespace
}  // namespace smoe
