#include "smoe/eval/text_filters.h"

#include <gtest/gtest.h>

namespace smoe {
namespace {

TEST(TextFilters, StripRemovesUnicodeSpacesAtTheEndsOnly) {
  EXPECT_EQ(strip("\u00a0\u3000 a b\u2028\n"), "a b");
  EXPECT_EQ(strip_left(" \u2003x "), "x ");
  EXPECT_EQ(strip_right(" é\u0085"), " é");
  EXPECT_EQ(strip("  \t"), "");
  // Zero-width space is no space for Python.
  EXPECT_EQ(strip("\u200bx"), "\u200bx");
}

TEST(TextFilters, CapitalizeRaisesTheFirstAndLowersTheRestBeyondAscii) {
  EXPECT_EQ(capitalize("hE iS An ÉLÈVE"), "He is an élève");
  EXPECT_EQ(capitalize("éCOLE"), "École");
  EXPECT_EQ(capitalize("ÖÄ"), "Öä");
  EXPECT_EQ(capitalize(""), "");
  EXPECT_EQ(capitalize("7 Up"), "7 up");
}

TEST(TextFilters, CodePointsAreCountedNotBytes) {
  EXPECT_EQ(count_code_points("aé€😀"), 4);
  EXPECT_EQ(count_code_points(""), 0);
}

TEST(TextFilters, WhitespacePiecesAreThoseOfARegularExpressionSplit) {
  EXPECT_EQ(count_whitespace_pieces("one  two\n\nthree"), 3);
  EXPECT_EQ(count_whitespace_pieces(" one "), 3);  // empty pieces at both ends count
  EXPECT_EQ(count_whitespace_pieces(""), 1);
}

TEST(TextFilters, HellaswagTitlesBecomeFullStopsAndBracketsVanish) {
  EXPECT_EQ(clean_hellaswag(" Fry it. [title] Serve [step] now. "), "Fry it.. Serve now.");
  EXPECT_EQ(clean_hellaswag("[header] How to [substeps] cook"), " How to cook");
  // Non-greedy, and never across lines; double spaces are replaced once, left to right.
  EXPECT_EQ(clean_hellaswag("a [b] c] d"), "a c] d");
  EXPECT_EQ(clean_hellaswag("a [b\nc] d"), "a [b\nc] d");
  EXPECT_EQ(clean_hellaswag("a    b"), "a  b");
}

}  // namespace
}  // namespace smoe
