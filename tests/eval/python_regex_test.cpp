#include "smoe/eval/python_regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smoe/core/error.h"

namespace smoe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> matches(std::string_view pattern, std::string_view text,
                                 PythonRegexFlags flags = {}) {
  std::vector<std::string> result;
  for (const TextRange& range : PythonRegex(pattern, flags).ranges(text)) {
    result.emplace_back(text.substr(range.begin, range.end - range.begin));
  }
  return result;
}

std::string error_of(std::string_view pattern) {
  try {
    PythonRegex regex(pattern);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PythonRegex, AnEmptyMatchMayFollowANonEmptyOne) {
  // re.findall("x*", "axb") is ["", "x", "", ""].
  EXPECT_THAT(matches("x*", "axb"), ElementsAre("", "x", "", ""));
  EXPECT_THAT(matches("x*", ""), ElementsAre(""));
  EXPECT_EQ(PythonRegex("x*").substitute("axé", "-"), "-a--é-");
}

TEST(PythonRegex, LineAnchorsKnowTheFinalNewline) {
  EXPECT_THAT(matches("^.*$", "a\n", {.multiline = true}), ElementsAre("a", ""));
  EXPECT_THAT(matches("a$", "a\n"), ElementsAre("a"));
  EXPECT_TRUE(matches("a\\Z", "a\n").empty());
  EXPECT_THAT(matches("a.b", "a\rb a\nb"), ElementsAre("a\rb"));
}

TEST(PythonRegex, ClassesFollowPythonsUnicode) {
  EXPECT_THAT(matches("\\w+", "naïve_1 ½ e\u0301x"), ElementsAre("naïve_1", "½", "e", "x"));
  EXPECT_EQ(matches("\\s", "\x1c\u0085\u3000\u180e\u200b").size(), 3);
  EXPECT_EQ(matches("[\\s]", "\x1f\u2028x").size(), 2);
  EXPECT_THAT(matches("\\d+", "٣4"), ElementsAre("٣4"));
  EXPECT_THAT(matches("\\bdie\\b", "Die édie DIE.", {.ignore_case = true}), ElementsAre("Die", "DIE"));
  EXPECT_EQ(matches("\\v|\\u00e9|[[]|[]]", "\x0b\né[]").size(), 4);
}

TEST(PythonRegex, OpenRepetitionsAndNamedGroupsAreRead) {
  EXPECT_THAT(matches("a{,2}b", "aaab b"), ElementsAre("aab", "b"));
  EXPECT_THAT(matches("a{,b", "a{,b"), ElementsAre("a{,b"));
  EXPECT_THAT(PythonRegex("(?P<l>.)(?P=l)").find_all("aabbc"),
              ElementsAre(ElementsAre("a"), ElementsAre("b")));
}

TEST(PythonRegex, GroupsSplitsAndSubstitutionsAreThoseOfRe) {
  EXPECT_THAT(PythonRegex("(x)|(y)").find_all("yx"), ElementsAre(ElementsAre("", "y"), ElementsAre("x", "")));
  EXPECT_THAT(PythonRegex(",\\s?").split("a, b,c,"), ElementsAre("a", "b", "c", ""));
  EXPECT_EQ(PythonRegex("(a)(b)?").substitute("ab a", "<\\1\\2>$"), "<ab>$ <a>$");
  EXPECT_THAT(PythonRegex("b(c)?").first_match("abd"), ElementsAre("b", ""));
  EXPECT_TRUE(PythonRegex("z").first_match("abd").empty());
  EXPECT_EQ(PythonRegex(escape_python_regex("a.b[$]")).count("a.b[$] axb[$]"), 1);
}

TEST(PythonRegex, WhatPythonRefusesOrCannotBeTranslatedIsRefused) {
  EXPECT_THAT(error_of("a\\h"), HasSubstr("'a\\h' (Python syntax) has at offset 3"));
  EXPECT_THAT(error_of("[\\W]"), HasSubstr("inside a class"));
  EXPECT_THAT(error_of("(?R)"), HasSubstr("unknown kind of group"));
  EXPECT_THAT(error_of("(*FAIL)"), HasSubstr("nothing to repeat"));
  EXPECT_THAT(error_of("a(?i)b"), HasSubstr("not at the start"));
  EXPECT_THAT(error_of("[abc"), HasSubstr("closing bracket"));
  EXPECT_THAT(error_of("(ab"), HasSubstr("cannot be compiled"));
  EXPECT_THAT(error_of("\\x4"), HasSubstr("incomplete escape"));
  EXPECT_THAT(error_of("a\\"), HasSubstr("lone backslash"));
}

TEST(PythonRegex, TextThatIsNotUtf8AndEndlessSearchesAreErrors) {
  EXPECT_THROW(PythonRegex("a").search("\xff"), DataError);
  EXPECT_THROW(PythonRegex("a").ranges("aa\xc3"), DataError);
  EXPECT_THROW(PythonRegex("(a*)*$").search(std::string(40, 'a') + "b"), DataError);
}

}  // namespace
}  // namespace smoe
