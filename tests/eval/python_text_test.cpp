#include "smoe/eval/python_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smoe {
namespace {

using ::testing::ElementsAre;

TEST(PythonText, LowerUsesFullMappings) {
  EXPECT_EQ(lower("ABC z"), "abc z");
  EXPECT_EQ(lower("İ"), "i\u0307");
  EXPECT_EQ(lower("ΟΔΟΣ"), "οδος");
  EXPECT_EQ(lower_each_character("ΟΔΟΣ"), "οδοσ");
}

TEST(PythonText, CaseTestsNeedACasedCharacterAndNoneOfTheOtherCase) {
  EXPECT_TRUE(is_upper("ABC 1!"));
  EXPECT_FALSE(is_upper("123"));
  EXPECT_FALSE(is_upper("ABCß"));
  EXPECT_TRUE(is_upper("Ⅷ"));
  EXPECT_FALSE(is_upper("Aǅ"));  // a title-case letter is neither
  EXPECT_TRUE(is_lower("straße ª"));
  EXPECT_FALSE(is_lower("é É"));
  EXPECT_FALSE(has_letter("1 ½ 😀"));
  EXPECT_TRUE(has_letter("1 ж"));
}

TEST(PythonText, SplitsKeepOrDropEmptyPieces) {
  EXPECT_THAT(split_at("a--b-", "--"), ElementsAre("a", "b-"));
  EXPECT_THAT(split_at("--", "--"), ElementsAre("", ""));
  EXPECT_THAT(split_at_spaces("\u00a0 one\u3000two\n"), ElementsAre("one", "two"));
  EXPECT_TRUE(split_at_spaces(" ").empty());
  EXPECT_EQ(count_occurrences("aaaa", "aa"), 2);
  EXPECT_EQ(replace_each("aXbX", "X", "yy"), "ayybyy");
  EXPECT_EQ(strip_right_character(strip_left_character("**a*b*", '*'), '*'), "a*b");
}

TEST(PythonText, JsonIsWhatPythonsLoadsReads) {
  for (const char* good : {"{}", " [1, 2.5e-3, -0, null, true, false]\n", "NaN", "[-Infinity]",
                           "\"\\ud800\\n\"", "1e999", "{\"a\": {\"a\": []}, \"a\": 1}", "\"é\""}) {
    EXPECT_TRUE(is_python_json(good)) << good;
  }
  for (const char* bad : {"",      "{",   "[1,]", "{\"a\":1,}", "{a: 1}",  "01",        "1.",
                          "-",     "+1",  "\"a",  "\"\t\"",     "\"\\x\"", "\"\\u12\"", "[1 2]",
                          "[] []", "nan", "'a'",  "\ufeff{}",   "{\"a\"}", "]",         "[}"}) {
    EXPECT_FALSE(is_python_json(bad)) << bad;
  }
}

TEST(PythonText, DeepJsonDoesNotExhaustTheStack) {
  constexpr size_t kDepth = 1'000'000;
  EXPECT_TRUE(is_python_json(std::string(kDepth, '[') + std::string(kDepth, ']')));
  EXPECT_FALSE(is_python_json(std::string(kDepth, '[')));
}

}  // namespace
}  // namespace smoe
