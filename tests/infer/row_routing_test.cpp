#include "smoe/infer/row_routing.h"

#include <gtest/gtest.h>

#include <map>

namespace smoe {
namespace {

// The selector of every token of a row, by the definition.
int64_t selector_of(const RowRouting& routing, int64_t position) {
  const int64_t length = routing.segment_length;
  if (routing.mode == RoutingMode::kSegments) return position / length * length;
  const int64_t response = position - routing.prompt_tokens;
  return response < length ? routing.prompt_tokens - 1 : routing.prompt_tokens + response / length * length;
}

TEST(RowRouting, AnyDivisionIntoForwardsRoutesEveryTokenByItsDefinition) {
  for (const RoutingMode mode : {RoutingMode::kSegments, RoutingMode::kLastPromptToken}) {
    for (const int64_t length : {1, 2, 5, 8}) {
      for (const int64_t piece : {1, 3, 4, 30}) {
        const RowRouting routing{mode, length, 7};
        int64_t current = -1;  // what the row carries
        for (int64_t position = 0; position < 30;) {
          const int64_t kept =
              position == 0 ? std::max<int64_t>(piece, 7) : std::min<int64_t>(piece, 30 - position);
          SegmentMap map{1, kept + 2, {}};
          append_segments(routing, 0, position, kept, kept + 2, map);
          map.check();
          for (const Segment& segment : map.segments) {
            if (segment.selector != kCarriedSelector) current = position + segment.selector;
            for (int64_t token = segment.begin; token < std::min(segment.end, kept); ++token) {
              EXPECT_EQ(current, selector_of(routing, position + token)) << position + token;
            }
          }
          position += kept;
        }
      }
    }
  }
}

TEST(RowRouting, PaddingSharesTheLastSegment) {
  SegmentMap map{2, 10, {}};
  append_segments({RoutingMode::kSegments, 4, 5}, 0, 0, 5, 10, map);
  append_segments({RoutingMode::kSegments, 4, 5}, 1, 5, 0, 10, map);
  const std::vector<Segment> expected = {{0, 0, 4, 0}, {0, 4, 10, 4}, {1, 0, 10, kCarriedSelector}};
  EXPECT_EQ(map.segments, expected);
}

}  // namespace
}  // namespace smoe
