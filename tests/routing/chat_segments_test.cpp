#include "smoe/routing/chat_segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace smoe {
namespace {

using ::testing::ElementsAre;

TEST(ChatSegments, LastPromptTokenRoutesPromptAndFirstResponseRun) {
  // Prompt 0..4, response 5..14.
  const SegmentMap map = chat_segments({{{0, 15, {{5, 15}}}}}, 15, 4);
  map.check();
  EXPECT_THAT(map.segments, ElementsAre(Segment{0, 0, 9, 4}, Segment{0, 9, 13, 9}, Segment{0, 13, 15, 13}));
}

TEST(ChatSegments, LaterRunsAreRoutedByTokensOfTheirAnswer) {
  EXPECT_THAT(chat_segments({{{0, 15, {{5, 15}}}}}, 15, 4, SelectorPosition::kPreviousLast).segments,
              ElementsAre(Segment{0, 0, 9, 4}, Segment{0, 9, 13, 8}, Segment{0, 13, 15, 12}));
  EXPECT_THAT(chat_segments({{{0, 15, {{5, 15}}}}}, 15, 4, SelectorPosition::kPreviousMean).segments,
              ElementsAre(Segment{0, 0, 9, 4}, Segment{0, 9, 13, 8, 4}, Segment{0, 13, 15, 12, 4}));
}

TEST(ChatSegments, ShortResponseIsOneRunWithItsPrompt) {
  EXPECT_THAT(chat_segments({{{0, 7, {{5, 7}}}}}, 7, 4).segments, ElementsAre(Segment{0, 0, 7, 4}));
  // A response of one token is a target only.
  EXPECT_THAT(chat_segments({{{0, 5, {{5, 5}}}}}, 5, 4).segments, ElementsAre(Segment{0, 0, 5, 4}));
}

TEST(ChatSegments, EveryTurnIsRoutedByTheLastTokenBeforeItsAnswer) {
  // Prompt 0..2, response 3..8, prompt 9..11, response 12..13.
  const SegmentMap map = chat_segments({{{0, 14, {{3, 9}, {12, 14}}}}}, 14, 4);
  map.check();
  EXPECT_THAT(map.segments, ElementsAre(Segment{0, 0, 7, 2}, Segment{0, 7, 9, 7}, Segment{0, 9, 14, 11}));
}

TEST(ChatSegments, StartAnewInEachDialogueAndRow) {
  const ChatRow two = {{0, 4, {{2, 4}}}, {4, 9, {{6, 9}}}};
  const ChatRow one = {{0, 10, {{1, 10}}}};
  const SegmentMap map = chat_segments({two, one}, 10, 8);
  map.check();
  // Token 9 of row 0 is padding.
  EXPECT_THAT(map.segments, ElementsAre(Segment{0, 0, 4, 1}, Segment{0, 4, 10, 5}, Segment{1, 0, 9, 0},
                                        Segment{1, 9, 10, 9}));
}

TEST(ChatSegments, TokensAfterTheLastAnswerAreRoutedByTheirOwnFirstTokens) {
  const SegmentMap map = chat_segments({{{0, 12, {{2, 4}}}}}, 12, 4);
  EXPECT_THAT(map.segments, ElementsAre(Segment{0, 0, 4, 1}, Segment{0, 4, 8, 4}, Segment{0, 8, 12, 8}));
}

TEST(ChatSegments, RowWithoutADialogueIsOneRun) {
  EXPECT_THAT(chat_segments({{}}, 6, 4).segments, ElementsAre(Segment{0, 0, 6, 0}));
}

TEST(ChatSegments, NoSegmentReachesAcrossAnAnswersEnd) {
  for (int64_t segment_length = 1; segment_length < 20; ++segment_length) {
    const ChatRow row = {{0, 13, {{3, 9}, {11, 13}}}, {13, 20, {{15, 20}}}};
    const SegmentMap map = chat_segments({row}, 20, segment_length);
    map.check();
    for (const Segment& segment : map.segments) {
      for (const int64_t border : {int64_t{9}, int64_t{13}}) {
        EXPECT_FALSE(segment.begin < border && segment.end > border);
        EXPECT_EQ(segment.begin < border, segment.selector < border);
      }
    }
  }
}

TEST(ChatSegments, RefusesDialoguesThatDoNotFit) {
  EXPECT_THROW(chat_segments({{{0, 5, {{0, 5}}}}}, 5, 4), std::logic_error);          // no prompt token
  EXPECT_THROW(chat_segments({{{0, 9, {{2, 4}, {4, 9}}}}}, 9, 4), std::logic_error);  // the same in turn 2
  EXPECT_THROW(chat_segments({{{1, 5, {{2, 5}}}}}, 5, 4), std::logic_error);          // a gap
  EXPECT_THROW(chat_segments({{{0, 6, {{2, 6}}}}}, 5, 4), std::logic_error);          // past the row
  EXPECT_THROW(chat_segments({{{0, 5, {{2, 6}}}}}, 6, 4), std::logic_error);          // past the dialogue
}

}  // namespace
}  // namespace smoe
