#include "smoe/eval/math_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smoe/core/error.h"

namespace smoe {
namespace {

TEST(MathAnswers, TheClosingSentenceMayBeCutOff) {
  EXPECT_EQ(minerva_answer("Final Answer: The final answer is $2$. I hope it is correct."), "$2$");
  EXPECT_EQ(minerva_answer("Final Answer: The final answer is $2$. "), "$2$");
  EXPECT_EQ(minerva_answer("Final Answer: The final answer is $2$."), "[invalidanswer]");
  EXPECT_EQ(minerva_answer("The answer is 2"), "[invalidanswer]");
}

TEST(MathAnswers, NormalizationMakesWritingsEqual) {
  EXPECT_EQ(normalize_minerva_answer("x = \\frac12"), "\\frac{1}{2}");
  EXPECT_EQ(normalize_minerva_answer("$\\sqrt3$"), "\\sqrt{3}");
  EXPECT_EQ(normalize_minerva_answer("10,000 \\text{ dollars}"), "10000");
  EXPECT_EQ(normalize_minerva_answer("(0,1)"), "(0,1)");
  EXPECT_EQ(normalize_minerva_answer("\\left(1, 2\\right)"), "\\left(1,2\\right)");
  EXPECT_EQ(normalize_minerva_answer("90^\\circ"), "90");
}

TEST(MathAnswers, TheLastBoxIsTheReference) {
  EXPECT_EQ(minerva_reference("First $\\boxed{1}$, then $\\boxed{\\frac{1}{2}}$."), "\\frac{1}{2}");
  EXPECT_EQ(minerva_reference("It is $\\boxed 5$, surely"), "5");
  EXPECT_EQ(last_boxed("open \\boxed{1"), std::nullopt);
  EXPECT_EQ(last_boxed("nothing"), std::nullopt);
  EXPECT_EQ(last_boxed("\\fbox{a{b}}"), "\\fbox{a{b}}");
}

TEST(MathAnswers, SolutionsWithoutABoxAreErrors) {
  try {
    minerva_reference("The answer is five.");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("The answer is five."));
  }
  EXPECT_THROW(minerva_reference("\\fbox{5}"), DataError);
}

TEST(MathAnswers, EqualityIsOfTextsAndNotOfValues) {
  const std::string solution = "So $\\boxed{\\frac{1}{2}}$.";
  EXPECT_TRUE(minerva_equal("Final Answer: The final answer is $\\frac12$. I hope it is correct.", solution));
  EXPECT_FALSE(minerva_equal("Final Answer: The final answer is $0.5$. I hope it is correct.", solution));
  EXPECT_FALSE(minerva_equal("", solution));
}

}  // namespace
}  // namespace smoe
