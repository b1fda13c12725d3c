// Golden numbers come from tests/golden/random/permutation.py, an implementation of its own; those
// of SplitMix64 are also the published ones for the seed 1234567.
#include "smoe/core/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace smoe {
namespace {

using testing::ElementsAre;

std::vector<uint64_t> first_elements(const Permutation& permutation, uint64_t count) {
  std::vector<uint64_t> elements;
  for (uint64_t i = 0; i < count; ++i) elements.push_back(permutation(i));
  return elements;
}

TEST(SplitMix64, GivesThePublishedSequence) {
  SplitMix64 random(1234567);
  const std::vector<uint64_t> values = {random.next(), random.next(), random.next(), random.next(),
                                        random.next()};
  EXPECT_THAT(values, ElementsAre(6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                  4593380528125082431u, 16408922859458223821u));
}

TEST(SplitMix64, ContinuesFromASavedState) {
  SplitMix64 random(3);
  random.next();
  SplitMix64 copy(0);
  copy.set_state(random.state());
  EXPECT_EQ(copy.next(), random.next());
}

TEST(SplitMix64, BelowIsUniformAndStaysBelow) {
  SplitMix64 random(5);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts.at(random.below(7));
  // Six standard deviations of a binomial count with mean 10000.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 560);
  EXPECT_EQ(random.below(1), 0u);
  const uint64_t large = (uint64_t{1} << 63) + 1;
  for (int i = 0; i < 100; ++i) EXPECT_LT(random.below(large), large);
  EXPECT_THROW(random.below(0), std::logic_error);
}

TEST(SplitMix64, UniformFillsTheUnitInterval) {
  SplitMix64 random(6);
  double sum = 0.0;
  for (int i = 0; i < 100000; ++i) {
    const double value = random.uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.006);
}

TEST(MixSeeds, DependsOnEveryNumberAndTheirOrder) {
  EXPECT_EQ(mix_seeds(0, 0), 2558736989570252433u);
  EXPECT_EQ(mix_seeds(1, 2, 3), 7702586659592502839u);
  EXPECT_EQ(mix_seeds(3, 2, 1), 15432287184251514724u);
  std::set<uint64_t> seen;
  for (uint64_t a = 0; a < 20; ++a) {
    for (uint64_t b = 0; b < 20; ++b) {
      for (uint64_t c = 0; c < 20; ++c) seen.insert(mix_seeds(a, b, c));
    }
  }
  EXPECT_EQ(seen.size(), 8000u);
}

TEST(Permutation, HasTheGoldenElements) {
  EXPECT_THAT(first_elements(Permutation(10, 1), 10), ElementsAre(9, 6, 0, 1, 3, 4, 8, 2, 5, 7));
  EXPECT_THAT(first_elements(Permutation(1000, 42), 10),
              ElementsAre(980, 502, 727, 617, 443, 606, 83, 266, 22, 774));
  EXPECT_THAT(first_elements(Permutation(uint64_t{1} << 40, 7), 4),
              ElementsAre(204699862733u, 1072343000121u, 81136149539u, 287256452419u));
}

TEST(Permutation, IsABijectionForEverySize) {
  std::vector<uint64_t> sizes;
  for (uint64_t size = 1; size <= 300; ++size) sizes.push_back(size);
  for (const uint64_t size : {1023, 1024, 1025, 4097, 65535, 65537, 100003}) sizes.push_back(size);
  for (const uint64_t size : sizes) {
    const Permutation permutation(size, size * 31);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t element = permutation(i);
      ASSERT_LT(element, size);
      ASSERT_FALSE(seen[element]) << "size " << size << ", element " << element << " twice";
      seen[element] = true;
    }
  }
}

TEST(Permutation, DiffersBySeed) {
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t seed = 0; seed < 200; ++seed) orders.insert(first_elements(Permutation(1000, seed), 20));
  EXPECT_EQ(orders.size(), 200u);
}

TEST(Permutation, PutsEveryElementFirstEquallyOften) {
  std::vector<int> counts(10);
  for (uint64_t seed = 0; seed < 20000; ++seed) ++counts[Permutation(10, seed)(0)];
  // Five per cent, beyond six standard deviations of 42: small networks mix a little unevenly.
  for (const int count : counts) EXPECT_NEAR(count, 2000, 300);
}

TEST(Permutation, RefusesWhatItDoesNotContain) {
  EXPECT_THROW(Permutation(0, 1), std::logic_error);
  EXPECT_THROW(Permutation(5, 1)(5), std::logic_error);
  EXPECT_EQ(Permutation(1, 9)(0), 0u);
}

}  // namespace
}  // namespace smoe
