#include "smoe/routing/segment_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

namespace smoe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string check_error(const SegmentMap& map) {
  try {
    map.check();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

TEST(FixedSegments, TileRowsAndEndWithAShorterRun) {
  const SegmentMap map = fixed_segments(2, 10, 4);
  EXPECT_THAT(map.segments, ElementsAre(Segment{0, 0, 4, 0}, Segment{0, 4, 8, 4}, Segment{0, 8, 10, 8},
                                        Segment{1, 0, 4, 0}, Segment{1, 4, 8, 4}, Segment{1, 8, 10, 8}));
  EXPECT_EQ(map.num_segments(), 6);
  map.check();
}

TEST(FixedSegments, LongerThanTheRowIsOneRun) {
  EXPECT_THAT(fixed_segments(1, 5, 32).segments, ElementsAre(Segment{0, 0, 5, 0}));
}

TEST(FixedSegments, OfNoTokensAreNone) {
  const SegmentMap map = fixed_segments(3, 0, 4);
  EXPECT_EQ(map.num_segments(), 0);
  EXPECT_EQ(map.num_segments(), 0);
  map.check();
}

TEST(FixedSegments, StartAnewAtEveryDocument) {
  const at::Tensor documents_BT = at::tensor({7, 7, 7, 7, 7, 9, 9, 9,  //
                                              1, 2, 2, 2, 2, 2, 2, 1},
                                             at::kLong)
                                      .reshape({2, 8});
  const SegmentMap map = fixed_segments(documents_BT, 3);
  EXPECT_THAT(map.segments,
              ElementsAre(Segment{0, 0, 3, 0}, Segment{0, 3, 5, 3}, Segment{0, 5, 8, 5}, Segment{1, 0, 1, 0},
                          Segment{1, 1, 4, 1}, Segment{1, 4, 7, 4}, Segment{1, 7, 8, 7}));
  map.check();
}

TEST(FixedSegments, PaddingSharesTheExpertsOfTheLastSegment) {
  const at::Tensor documents_BT = at::tensor({0,  0,  0,  0,  1,  -1, -1, -1, -1, -1,  //
                                              0,  0,  0,  0,  0,  0,  0,  0,  0,  0,   //
                                              -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                             at::kLong)
                                      .reshape({3, 10});
  const SegmentMap map = fixed_segments(documents_BT, 4);
  EXPECT_THAT(map.segments, ElementsAre(Segment{0, 0, 4, 0}, Segment{0, 4, 10, 4}, Segment{1, 0, 4, 0},
                                        Segment{1, 4, 8, 4}, Segment{1, 8, 10, 8}, Segment{2, 0, 10, 0}));
  map.check();
}

TEST(FixedSegments, OfOneDocumentEqualThoseWithoutDocuments) {
  EXPECT_EQ(fixed_segments(at::zeros({3, 11}, at::kLong), 4).segments, fixed_segments(3, 11, 4).segments);
}

TEST(FixedSegments, RejectALengthBelowOne) { EXPECT_THROW(fixed_segments(1, 4, 0), std::logic_error); }

TEST(SegmentMap, KnowsTheRowsOfItsSegments) {
  const SegmentMap map = fixed_segments(2, 10, 4);
  EXPECT_TRUE(at::equal(map.segment_rows(), at::tensor({0, 0, 0, 1, 1, 1}, at::kLong)));
}

TEST(FixedSegments, AreRoutedByTokensBeforeThem) {
  const std::vector<Segment> last = {{0, 0, 4, 0}, {0, 4, 8, 3}, {0, 8, 10, 7}};
  EXPECT_EQ(fixed_segments(1, 10, 4, SelectorPosition::kPreviousLast).segments, last);
  const std::vector<Segment> mean = {{0, 0, 4, 0}, {0, 4, 8, 3, 4}, {0, 8, 10, 7, 4}};
  EXPECT_EQ(fixed_segments(1, 10, 4, SelectorPosition::kPreviousMean).segments, mean);
}

TEST(FixedSegments, NeverLookIntoTheDocumentBeforeTheirs) {
  const at::Tensor documents_BT = at::tensor({1, 1, 1, 2, 2, 2, 2, 2}, at::kLong).unsqueeze(0);
  const std::vector<Segment> expected = {
      {0, 0, 2, 0}, {0, 2, 3, 1, 2}, {0, 3, 5, 3}, {0, 5, 7, 4, 2}, {0, 7, 8, 6, 2}};
  EXPECT_EQ(fixed_segments(documents_BT, 2, SelectorPosition::kPreviousMean).segments, expected);
}

TEST(SegmentMap, SelectorMayLieOutsideItsRun) {
  // A prompt of 5 tokens and the first response run, routed by the last prompt token.
  const SegmentMap map{1, 12, {{0, 0, 9, 4}, {0, 9, 12, 9}}};
  map.check();
}

TEST(SegmentMap, CheckNamesWhatIsWrong) {
  const SegmentMap good = fixed_segments(2, 8, 4);
  struct Case {
    std::function<void(SegmentMap&)> damage;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {[](SegmentMap& map) { map.segments.pop_back(); }, "nothing covers row 1, token 4"},
      {[](SegmentMap& map) { map.segments.clear(); }, "nothing covers row 0, token 0"},
      {[](SegmentMap& map) { map.segments[1].begin = 5; }, "segment 1 (row 0, tokens [5, 8), selector 4)"},
      {[](SegmentMap& map) { map.segments[1].begin = 3; }, "begins at row 0, token 4"},
      {[](SegmentMap& map) { map.segments[1].end = 9; }, "(4, 8]"},
      {[](SegmentMap& map) { map.segments[1].end = 4; }, "(4, 8]"},
      {[](SegmentMap& map) { map.segments[0].selector = 8; }, "selector must lie in [0, 8)"},
      {[](SegmentMap& map) { map.segments[0].selector = -2; }, "selector must lie in [0, 8)"},
      {[](SegmentMap& map) { map.segments[1].selector_tokens = 6; }, "a mean over 6 selector tokens"},
      {[](SegmentMap& map) { map.segments[1].selector_tokens = 0; }, "a mean over 0 selector tokens"},
      {[](SegmentMap& map) { std::swap(map.segments[0], map.segments[2]); }, "begins at row 0, token 0"},
      {[](SegmentMap& map) {
         map.segments.push_back({2, 0, 4, 0});
       },
       "already tiled"},
  };
  EXPECT_EQ(check_error(good), "");
  for (const Case& each : cases) {
    SegmentMap map = good;
    each.damage(map);
    EXPECT_THAT(check_error(map), HasSubstr(each.expected));
  }
}

}  // namespace
}  // namespace smoe
