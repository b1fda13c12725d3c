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

// The selector of every token of a dialogue, and over how many tokens it reaches, as training has it.
using Choice = std::pair<int64_t, int64_t>;
std::vector<Choice> training_choices(const std::vector<ResponseSpan>& responses, int64_t num_tokens,
                                     int64_t segment_length, SelectorPosition selector) {
  std::vector<Choice> choices;
  for (const Segment& segment :
       chat_segments({{{0, num_tokens, responses}}}, num_tokens, segment_length, selector).segments) {
    choices.resize(static_cast<size_t>(segment.end), Choice(segment.selector, segment.selector_tokens));
  }
  return choices;
}

std::vector<std::pair<int64_t, SelectorPosition>> lengths_and_selectors() {
  std::vector<std::pair<int64_t, SelectorPosition>> all;
  for (const auto& [selector, name] : EnumNames<SelectorPosition>::values) {
    for (const int64_t length : {1, 2, 3, 5, 8, 50}) all.emplace_back(length, selector);
  }
  return all;
}

TEST(RowRouting, DialoguesAreRoutedTurnByTurnAsInTrainingHoweverTheyAreDivided) {
  // Turns of several lengths; the second answer is empty.
  const std::vector<ResponseSpan> earlier = {{3, 9}, {11, 11}, {12, 20}};
  constexpr int64_t kPrompt = 27, kTokens = 40;
  for (const auto& [length, selector] : lengths_and_selectors()) {
    std::vector<ResponseSpan> all = earlier;
    all.push_back({kPrompt, kTokens});
    const std::vector<Choice> expected = training_choices(all, kTokens, length, selector);
    for (const int64_t piece : {1, 2, 4, 10, 100}) {
      const RowRouting routing{RoutingMode::kLastPromptToken, length, kPrompt, earlier, selector};
      Choice current;
      int64_t position = 0;
      while (position < kTokens) {
        const int64_t end = position < kPrompt ? routing.piece_end(position, piece) : position + 1;
        ASSERT_GT(end, position);
        SegmentMap map{1, end - position, {}};
        append_segments(routing, 0, position, end - position, end - position, map);
        for (const Segment& segment : map.segments) {
          if (segment.selector != kCarriedSelector)
            current = {position + segment.selector, segment.selector_tokens};
          for (int64_t token = segment.begin; token < segment.end; ++token) {
            EXPECT_EQ(current, expected[static_cast<size_t>(position + token)])
                << "S " << length << ", pieces of " << piece << ", token " << position + token;
          }
        }
        position = end;
      }
    }
  }
}

TEST(RowRouting, PiecesStaySmallWhereTheRoutingAllowsIt) {
  const RowRouting routing{RoutingMode::kLastPromptToken, 2, 30, {{10, 20}}};
  EXPECT_EQ(routing.piece_end(0, 4), 10);   // up to the selector of the first turn
  EXPECT_EQ(routing.piece_end(10, 4), 14);  // inside the answer
  EXPECT_EQ(routing.piece_end(14, 8), 20);  // the next turn would not be whole
  EXPECT_EQ(routing.piece_end(20, 4), 30);
  EXPECT_EQ(routing.piece_end(0, 100), 30);
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
