// pass@k against counting every choice of k samples, and against exact binomials.
#include "smoe/eval/pass_at_k.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "smoe/core/error.h"

namespace smoe {
namespace {

double share_of_passing_subsets(int n, int c, int k) {
  int64_t subsets = 0;
  int64_t passing = 0;
  const unsigned right = (1U << c) - 1U;
  for (unsigned chosen = 0; chosen < (1U << n); ++chosen) {
    if (std::popcount(chosen) == k) {
      ++subsets;
      passing += (chosen & right) != 0 ? 1 : 0;
    }
  }
  return static_cast<double>(passing) / static_cast<double>(subsets);
}

TEST(PassAtK, EqualsTheShareOfSubsetsWithARightSample) {
  for (int n = 1; n <= 12; ++n) {
    for (int c = 0; c <= n; ++c) {
      for (int k = 1; k <= n; ++k) {
        EXPECT_NEAR(pass_at_k({n, c}, k), share_of_passing_subsets(n, c, k), 1e-15)
            << n << " " << c << " " << k;
      }
    }
  }
}

// C(n, k) exactly: with n <= 100 and k <= 25 it fits 128 bits.
__extension__ typedef unsigned __int128 Wide;
Wide binomial(int n, int k) {
  Wide value = 1;
  for (int i = 1; i <= k; ++i) {
    value = value * static_cast<unsigned>(n - k + i) / static_cast<unsigned>(i);
  }
  return value;
}

TEST(PassAtK, EqualsExactBinomialsForLargeN) {
  for (const int n : {64, 100}) {
    for (const int k : {1, 10, 25}) {
      for (int c = 1; c <= n - k; ++c) {
        const Wide all = binomial(n, k);
        const long double expected =
            static_cast<long double>(all - binomial(n - c, k)) / static_cast<long double>(all);
        EXPECT_NEAR(pass_at_k({n, c}, k) / static_cast<double>(expected), 1.0, 4e-15)
            << n << " " << c << " " << k;
      }
    }
  }
}

TEST(PassAtK, KeepsTheDigitsOfSmallResults) {
  // One right sample of n, one draw: exactly 1/n.
  EXPECT_NEAR(pass_at_k({1'000'000'007, 1}, 1) * 1'000'000'007.0, 1.0, 1e-15);
}

TEST(PassAtK, IsZeroOrOneAtTheEdges) {
  EXPECT_EQ(pass_at_k({1, 0}, 1), 0.0);
  EXPECT_FALSE(std::signbit(pass_at_k({10, 0}, 5)));
  EXPECT_EQ(pass_at_k({1, 1}, 1), 1.0);
  EXPECT_EQ(pass_at_k({10, 6}, 5), 1.0);
  EXPECT_EQ(pass_at_k({10, 10}, 10), 1.0);
  EXPECT_EQ(pass_at_k({10, 0}, 10), 0.0);
}

TEST(PassAtK, RefusesCountsThatCannotBe) {
  EXPECT_THROW(pass_at_k({4, 5}, 1), ConfigError);
  EXPECT_THROW(pass_at_k({4, -1}, 1), ConfigError);
  EXPECT_THROW(pass_at_k({4, 2}, 0), ConfigError);
  EXPECT_THROW(pass_at_k({4, 2}, 5), ConfigError);
}

TEST(PassAtK, NamesTheProblemWithTooFewSamples) {
  const std::vector<SampleCounts> problems{{10, 3}, {8, 1}};
  EXPECT_EQ(pass_at_k(problems, 8).size(), 2U);
  try {
    pass_at_k(problems, 10);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "pass@10: problem 2 has only 8 samples; draw at least 10 or ask for a smaller k");
  }
}

}  // namespace
}  // namespace smoe
