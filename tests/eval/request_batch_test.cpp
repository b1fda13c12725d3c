#include "smoe/eval/request_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

// Context 1 2 3 4 5 with continuations 6 7 8 and 9 10.
std::vector<Request> two_choices() {
  return {{{1, 2, 3, 4, 5}, {6, 7, 8}, 0}, {{1, 2, 3, 4, 5}, {9, 10}, 0}};
}

RequestBatch pack(const std::vector<Request>& requests, int64_t segment_length, RoutingMode mode) {
  const auto trees = build_request_trees(requests, mode);
  return pack_request_trees(requests, trees, {8192, segment_length, mode}, 0);
}

TEST(RequestBatch, ChoicesOfAnItemBecomeOneRowWithoutTheirLastIds) {
  const RequestBatch batch = pack(two_choices(), 4, RoutingMode::kSegments);
  EXPECT_TRUE(batch.input.tokens_BT.equal(at::tensor({1, 2, 3, 4, 5, 6, 7, 9}, at::kLong).unsqueeze(0)));
  EXPECT_TRUE(batch.input.positions_BT.equal(at::tensor({0, 1, 2, 3, 4, 5, 6, 5}, at::kLong).unsqueeze(0)));
  EXPECT_EQ(batch.num_requests, 2);
}

TEST(RequestBatch, BranchesSeeTheContextAndThemselvesOnly) {
  const at::Tensor allowed = pack(two_choices(), 4, RoutingMode::kSegments).input.attention_BTT[0];
  const auto row = [&](int64_t i) {
    std::string text;
    for (int64_t j = 0; j < allowed.size(1); ++j) text += allowed[i][j].item<bool>() ? '1' : '0';
    return text;
  };
  EXPECT_EQ(row(0), "10000000");
  EXPECT_EQ(row(4), "11111000");
  EXPECT_EQ(row(6), "11111110");
  EXPECT_EQ(row(7), "11111001");
}

TEST(RequestBatch, TheLastContextTokenPredictsTheFirstIdOfEveryChoice) {
  std::vector<std::array<int64_t, 3>> targets;
  for (const ScoredToken& target : pack(two_choices(), 4, RoutingMode::kSegments).targets) {
    targets.push_back({target.position, target.token, static_cast<int64_t>(target.request)});
  }
  using T = std::array<int64_t, 3>;
  EXPECT_THAT(targets, ::testing::ElementsAre(T{4, 6, 0}, T{4, 9, 1}, T{5, 7, 0}, T{6, 8, 0}, T{7, 10, 1}));
}

TEST(RequestBatch, ABranchThatStartsInsideASegmentIsRoutedByTheContext) {
  // S = 4: the logical sequence 1 2 3 4 | 5 6 7: tokens 6, 7 belong to the segment of token 5.
  const std::vector<Segment> expected = {{0, 0, 4, 0}, {0, 4, 5, 4}, {0, 5, 7, 4}, {0, 7, 8, 4}};
  EXPECT_EQ(pack(two_choices(), 4, RoutingMode::kSegments).input.segments.segments, expected);
  // S = 5: the context ends with a segment, so branches start their own.
  const std::vector<Segment> aligned = {{0, 0, 5, 0}, {0, 5, 7, 5}, {0, 7, 8, 7}};
  EXPECT_EQ(pack(two_choices(), 5, RoutingMode::kSegments).input.segments.segments, aligned);
}

TEST(RequestBatch, TheLastPromptTokenRoutesContextAndFirstRun) {
  const std::vector<Segment> expected = {{0, 0, 5, 4}, {0, 5, 6, 4}, {0, 6, 7, 6}, {0, 7, 8, 4}};
  EXPECT_EQ(pack(two_choices(), 1, RoutingMode::kLastPromptToken).input.segments.segments, expected);
}

TEST(RequestBatch, PaddingAttendsToItselfAndIsASegmentOfItsOwn) {
  std::vector<Request> requests = two_choices();
  requests.push_back({{11, 12}, {13, 14}, 1});
  const RequestBatch batch = pack(requests, 4, RoutingMode::kSegments);
  EXPECT_EQ(batch.input.tokens_BT.size(0), 2);
  const at::Tensor padding = batch.input.attention_BTT[1].slice(0, 3);
  EXPECT_TRUE(padding.equal(at::eye(8).slice(0, 3).to(at::kBool)));
  EXPECT_EQ(batch.input.segments.segments.back(), (Segment{1, 3, 8, 3}));
  EXPECT_NO_THROW(batch.input.segments.check());
}

TEST(RequestBatch, RowsWithoutBranchesNeedNoMask) {
  const RequestBatch batch = pack({{{1, 2}, {3, 4}, 0}, {{1}, {2}, 1}}, 4, RoutingMode::kSegments);
  EXPECT_FALSE(batch.input.attention_BTT.defined());
  EXPECT_NO_THROW(batch.input.segments.check());
}

TEST(RequestBatch, OnlyNeighboursOfOneGroupWithOneContextShareARow) {
  const std::vector<Request> requests = {{{1, 2}, {3}, 0}, {{1, 2}, {4}, 1}, {{1}, {5}, 1}, {{1}, {6}, 1}};
  const auto trees = build_request_trees(requests);
  ASSERT_EQ(trees.size(), 3u);
  EXPECT_THAT(trees[2].requests, ::testing::ElementsAre(2u, 3u));
}

// Ten ids in common, then the option 50 or 51 52, then the same continuation 60 61.
std::vector<Request> two_options() {
  std::vector<int32_t> common(10);
  std::iota(common.begin(), common.end(), 1);
  std::vector<Request> requests(2, Request{common, {60, 61}, 0});
  requests[0].context.push_back(50);
  requests[1].context.insert(requests[1].context.end(), {51, 52});
  return requests;
}

TEST(RequestBatch, ContextsThatDifferAtTheirEndShareTheirBeginning) {
  const RequestBatch batch = pack(two_options(), 4, RoutingMode::kSegments);
  EXPECT_TRUE(batch.input.tokens_BT.equal(
      at::tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 50, 60, 51, 52, 60}, at::kLong).unsqueeze(0)));
  EXPECT_TRUE(
      batch.input.positions_BT.slice(1, 10).equal(at::tensor({10, 11, 10, 11, 12}, at::kLong).unsqueeze(0)));
  std::vector<std::array<int64_t, 3>> targets;
  for (const ScoredToken& target : batch.targets) {
    targets.push_back({target.position, target.token, static_cast<int64_t>(target.request)});
  }
  using T = std::array<int64_t, 3>;
  EXPECT_THAT(targets, ::testing::ElementsAre(T{10, 60, 0}, T{11, 61, 0}, T{13, 60, 1}, T{14, 61, 1}));
  // S = 4: the options stand in the segment of token 9, at position 8.
  const std::vector<Segment> expected = {{0, 0, 4, 0},   {0, 4, 8, 4},   {0, 8, 10, 8},
                                         {0, 10, 12, 8}, {0, 12, 14, 8}, {0, 14, 15, 14}};
  EXPECT_EQ(batch.input.segments.segments, expected);
}

TEST(RequestBatch, ContextsThatDifferStayApartWhereTheirLastTokenRoutesThem) {
  EXPECT_EQ(build_request_trees(two_options(), RoutingMode::kLastPromptToken).size(), 2u);
  EXPECT_EQ(build_request_trees(two_options(), RoutingMode::kSegments).size(), 1u);
}

TEST(RequestBatch, TreesComeLongestFirst) {
  const auto trees = build_request_trees({{{1}, {3}, 0}, {{1, 2, 3}, {4}, 1}, {{1, 2}, {5, 6}, 2}});
  EXPECT_EQ(trees[0].length, 3);
  EXPECT_EQ(trees[0].requests.front(), 1u);
  EXPECT_EQ(trees[2].length, 1);
}

TEST(RequestBatch, UnknownRoutingModesAreRefused) {
  EXPECT_THAT(error_text<ConfigError>([] { parse_routing_mode("first"); }),
              ::testing::HasSubstr("last_prompt_token"));
}

}  // namespace
}  // namespace smoe
