#include "model/expert_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace smoe {
namespace {

// 3 segments of 10, 0 and 25 tokens over 3 experts; expert 1 is not selected where there are tokens.
ExpertSchedule small_schedule() {
  const at::Tensor mask_QE =
      at::tensor({1.0, 0.0, 0.5, 1.0, 1.0, 1.0, 0.0, 0.0, 2.0}, at::kDouble).view({3, 3});
  const at::Tensor ranges_Q2 = at::tensor({0, 10, 10, 10, 10, 35}, at::kLong).view({3, 2});
  return make_expert_schedule(mask_QE, ranges_Q2);
}

TEST(ExpertSchedule, ListsSelectedNonEmptySegmentsByExpert) {
  const ExpertSchedule schedule = small_schedule();
  EXPECT_EQ(schedule.num_rows, (std::vector<int64_t>{10, 0, 35}));
  EXPECT_EQ(schedule.first_run, (std::vector<int64_t>{0, 1, 1, 3}));
  EXPECT_EQ(schedule.total_rows, 45);
  EXPECT_EQ(schedule.runs[1].mask, 0.5);
  EXPECT_EQ(schedule.runs[2].begin, 10);
  EXPECT_EQ(schedule.runs[2].count, 25);
  EXPECT_EQ(schedule.runs[2].segment, 2);
}

TEST(ExpertSchedule, ChunksCoverEveryRowOnceAndStayBelowTheirLimit) {
  for (const int64_t limit : {1, 4, 7, 1000}) {
    const ExpertSchedule schedule = small_schedule();
    const ExpertWork work = divide_expert_work(schedule, limit, 3);
    std::vector<int64_t> rows_of_run(schedule.runs.size(), 0);
    for (const ExpertChunk& chunk : work.chunks) {
      EXPECT_LE(chunk.num_rows, limit);
      int64_t rows = 0;
      for (int64_t index = chunk.first_piece; index < chunk.end_piece; ++index) {
        const ExpertPiece& piece = work.pieces[index];
        EXPECT_EQ(piece.begin, schedule.runs[piece.run].begin + rows_of_run[piece.run]);
        EXPECT_GE(piece.run, schedule.first_run[chunk.expert]);
        EXPECT_LT(piece.run, schedule.first_run[chunk.expert + 1]);
        rows_of_run[piece.run] += piece.count;
        rows += piece.count;
      }
      EXPECT_EQ(rows, chunk.num_rows);
    }
    for (size_t run = 0; run < schedule.runs.size(); ++run) {
      EXPECT_EQ(rows_of_run[run], schedule.runs[run].count);
    }
  }
}

TEST(ExpertSchedule, ThreadsGetContiguousSharesOfAboutTheSameSize) {
  const ExpertSchedule schedule = small_schedule();
  const ExpertWork work = divide_expert_work(schedule, 2, 4);
  ASSERT_EQ(work.num_threads(), 4);
  EXPECT_EQ(work.first_chunk.front(), 0);
  EXPECT_EQ(work.first_chunk.back(), static_cast<int64_t>(work.chunks.size()));
  for (int64_t thread = 0; thread < 4; ++thread) {
    int64_t rows = 0;
    for (int64_t index = work.first_chunk[thread]; index < work.first_chunk[thread + 1]; ++index) {
      rows += work.chunks[index].num_rows;
    }
    EXPECT_NEAR(static_cast<double>(rows), 45.0 / 4, 2.0);
  }
}

TEST(ExpertSchedule, AThreadKnowsWhenItContinuesAnExpert) {
  const ExpertWork work = divide_expert_work(small_schedule(), 5, 2);
  EXPECT_FALSE(work.continues_expert(0));
  EXPECT_TRUE(work.continues_expert(1));
}

TEST(ExpertSchedule, MoreThreadsThanChunksLeavesSomeWithoutWork) {
  const ExpertWork work = divide_expert_work(small_schedule(), 1000, 8);
  ASSERT_EQ(work.chunks.size(), 2U);
  for (int64_t thread = 0; thread < 8; ++thread) {
    EXPECT_LE(work.first_chunk[thread], work.first_chunk[thread + 1]);
    EXPECT_FALSE(work.continues_expert(thread));
  }
}

}  // namespace
}  // namespace smoe
