#include "smoe/eval/answer_filters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smoe/core/error.h"

namespace smoe {
namespace {

TEST(RegexFilter, TakesTheChosenMatchAndItsFirstFilledGroup) {
  EXPECT_EQ(RegexFilter({R"((\d+))", 0}).apply("a 1 b 22"), "1");
  EXPECT_EQ(RegexFilter({R"((\d+))", -1}).apply("a 1 b 22"), "22");
  EXPECT_EQ(RegexFilter({R"(\d+ )", 0}).apply("a 1 b"), "1");
  EXPECT_EQ(RegexFilter({"(x)|(y)", 0}).apply("y"), "y");
}

TEST(RegexFilter, WithoutAnAnswerItSaysInvalid) {
  EXPECT_EQ(RegexFilter({R"((\d+))", 0}).apply("none"), "[invalid]");
  EXPECT_EQ(RegexFilter({R"((\d+))", 2}).apply("1 2"), "[invalid]");
  EXPECT_EQ(RegexFilter({R"((\d+))", -3}).apply("1 2"), "[invalid]");
  EXPECT_EQ(RegexFilter({"(x)?(y)?", 0}).apply("z"), "[invalid]");
  // One group alone may be empty.
  EXPECT_EQ(RegexFilter({"z(x)?", 0}).apply("z"), "");
}

TEST(RegexFilter, BadPatternsAreNamed) {
  try {
    RegexFilter filter({"(unclosed", 0});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("(unclosed"));
  }
}

TEST(TakeFirst, NeedsASample) {
  const std::vector<std::string> samples = {"a", "b"};
  EXPECT_EQ(take_first(samples), "a");
  EXPECT_THROW(take_first({}), DataError);
}

TEST(ExactMatch, NormalizesInTheStatedOrder) {
  // The regular expression sees the text before case and punctuation are gone.
  const ExactMatch metric(
      {.regexes_to_ignore = {"The ", "\\.$"}, .ignore_case = true, .ignore_punctuation = true});
  EXPECT_EQ(metric.normalize("The the U.S.A."), "the usa");
  EXPECT_TRUE(metric.equal("The end!", "END"));
  EXPECT_FALSE(metric.equal("the end", "end"));
  EXPECT_EQ(ExactMatch({}).normalize("A, b."), "A, b.");
}

TEST(ExactMatch, OnlyAsciiPunctuationGoes) {
  EXPECT_EQ(ExactMatch(triviaqa_exact_match()).normalize("«Ça va?»"), "«ça va»");
}

TEST(Gsm8k, StrictAndFlexibleReadTheSameSolution) {
  const std::string solution = "She has 3 * 4 = <<3*4=12>>12 eggs.\n#### 1,012";
  const ExactMatch metric(gsm8k_exact_match());
  const RegexFilter strict(gsm8k_strict_filter());
  const RegexFilter flexible(gsm8k_flexible_filter());
  EXPECT_EQ(metric.normalize(solution), "1012");
  EXPECT_TRUE(metric.equal(strict.apply("So it is\n#### 1,012 and #### 7"), solution));
  EXPECT_EQ(strict.apply("The answer is 1012"), "[invalid]");
  EXPECT_TRUE(metric.equal(flexible.apply("It was 5, now $1,012."), solution));
  EXPECT_FALSE(metric.equal(flexible.apply("It is 1,012 or 1,013"), solution));
}

TEST(Gsm8k, ChainOfThoughtNeedsACharacterBehindTheAnswer) {
  const RegexFilter filter(gsm8k_chain_of_thought_filter());
  EXPECT_EQ(filter.apply("The answer is 18."), "18");
  EXPECT_EQ(filter.apply("The answer is 18"), "1");
  EXPECT_EQ(filter.apply("The answer is 8"), "[invalid]");
}

TEST(TriviaQa, AnyAliasCounts) {
  const std::vector<std::string> aliases = {"David Seville", "Ross Bagdasarian, Sr."};
  const ExactMatch metric(triviaqa_exact_match());
  EXPECT_TRUE(metric.any_equal(remove_whitespace(" ross bagdasarian sr\n"), aliases));
  EXPECT_FALSE(metric.any_equal("the David Seville", aliases));  // articles count
  EXPECT_THROW(metric.any_equal("x", {}), DataError);
}

}  // namespace
}  // namespace smoe
