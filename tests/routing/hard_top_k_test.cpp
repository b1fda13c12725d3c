#include <limits>

#include "routing_test_support.h"
#include "smoe/routing/soft_top_k_solvers.h"

namespace smoe::testing {
namespace {

TEST(HardTopK, HasExactlyAsManyOnesAsAsked) {
  const at::Tensor scores_RE = gaussian({213, 212}, 41);
  const at::Tensor counts_R = at::arange(213, at::kLong);
  const at::Tensor mask_RE = hard_top_k(scores_RE, counts_R);
  EXPECT_EQ(mask_RE.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::logical_or(mask_RE == 0, mask_RE == 1).all().item<bool>());
  EXPECT_TRUE(at::equal(mask_RE.sum(1).to(at::kLong), counts_R));
}

TEST(HardTopK, GivesTiesToTheLowestIndex) {
  EXPECT_TRUE(at::equal(hard_top_k(at::zeros({1, 6}), counts(1, 4)), row({1, 1, 1, 1, 0, 0})));
  EXPECT_TRUE(at::equal(hard_top_k(row({2, 5, 2, 7, 2, 2}), counts(1, 4)), row({1, 1, 1, 1, 0, 0})));
  EXPECT_TRUE(at::equal(hard_top_k(row({0.0, -0.0, 0.0, -1}), counts(1, 2)), row({1, 1, 0, 0})));
  EXPECT_TRUE(at::equal(hard_top_k(row({-0.0, 0.0, 0.0, -1}), counts(1, 1)), row({1, 0, 0, 0})));
}

TEST(HardTopK, NeverSelectsAForbiddenExpert) {
  const at::Tensor scores_RE = row({-kInfinity, -1e30, -kInfinity, -2e30});
  EXPECT_TRUE(at::equal(hard_top_k(scores_RE, counts(1, 2)), row({0, 1, 0, 1})));
}

// Scores rounded to few values tie in nearly every row.
TEST(HardTopK, IsThePrefixOfAStableSort) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor scores_RE = (gaussian({300, 50}, 42, dtype) * 3).round();
    const at::Tensor order_RE = std::get<1>(at::sort(scores_RE, /*stable=*/true, 1, /*descending=*/true));
    const at::Tensor rank_RE =
        at::empty({300, 50}, at::kLong).scatter_(1, order_RE, at::arange(50, at::kLong).expand({300, 50}));
    for (const int64_t count : {0, 1, 7, 25, 49, 50}) {
      EXPECT_TRUE(at::equal(hard_top_k(scores_RE, counts(300, count)), (rank_RE < count).to(at::kFloat)));
    }
  }
}

// The form for GPUs.
TEST(HardTopK, SortsToTheSameMaskAsTheLoops) {
  const at::Tensor scores_RE = (gaussian({51, 50}, 43) * 3).round();
  const at::Tensor counts_R = at::arange(51, at::kLong);
  EXPECT_TRUE(at::equal(hard_top_k_by_sort(scores_RE, counts_R), hard_top_k(scores_RE, counts_R)));
}

TEST(HardTopK, MarksRowsThatItCannotUseWithNanWhereItDoesNotWaitForTheScores) {
  at::Tensor scores_RE = gaussian({5, 6}, 44);
  scores_RE[1][4] = std::numeric_limits<double>::quiet_NaN();
  scores_RE[2][0] = kInfinity;
  scores_RE[3].narrow(0, 0, 5).fill_(-kInfinity);  // one expert is left, two are asked for
  const at::Tensor mask_RE = hard_top_k_by_sort(scores_RE, counts(5, 2));
  EXPECT_TRUE(at::equal(mask_RE.isnan().sum(1), at::tensor({0, 2, 2, 2, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(mask_RE.ne(0).sum(1), counts(5, 2)));
  EXPECT_TRUE(at::equal(mask_RE[0], hard_top_k(scores_RE.narrow(0, 0, 1), counts(1, 2))[0]));
}

TEST(HardTopK, SelectsTheSameAsTheLargestEntriesOfTheSoftMask) {
  const at::Tensor scores_RE = gaussian({100, 50}, 43);
  const at::Tensor soft_RE = soft_top_k(scores_RE, sums(100, 10), 3.0);
  EXPECT_TRUE(at::equal(hard_top_k(scores_RE, counts(100, 10)), hard_top_k(soft_RE, counts(100, 10))));
}

}  // namespace
}  // namespace smoe::testing
