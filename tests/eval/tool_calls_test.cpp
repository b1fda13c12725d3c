#include "smoe/eval/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smoe/core/error.h"
#include "smoe/core/json.h"
#include "smoe/eval/flexible_dates.h"
#include "smoe/eval/tool_arguments.h"

namespace smoe {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

ToolMessage read(std::string_view answer) { return read_tool_answer({}, answer); }

TEST(ToolAnswer, CallsStandBetweenMarksAndTextBeforeThem) {
  const ToolMessage message = read(
      "  Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\n"
      "<tool_call>{\"name\": \"g\", \"arguments\": \"{\\\"y\\\": [2]}\"}</tool_call> done");
  EXPECT_EQ(message.content, "Sure.\n");
  ASSERT_EQ(message.calls.size(), 2u);
  EXPECT_EQ(message.calls[0].name, "f");
  EXPECT_EQ(message.calls[1].arguments, (json{{"y", {2}}}));
}

TEST(ToolAnswer, AnUnfinishedLastCallCountsIfItsJsonIsWhole) {
  EXPECT_TRUE(read("<tool_call>{\"name\": \"f\", \"arguments\": {}}").calls.at(0).is_readable);
  const ToolMessage cut = read("<tool_call>{\"name\": \"f\", \"argum");
  ASSERT_EQ(cut.calls.size(), 1u);
  EXPECT_FALSE(cut.calls[0].is_readable);
}

TEST(ToolAnswer, JsonAloneIsACallAndOtherTextIsNone) {
  EXPECT_EQ(read("```json\n[{\"name\": \"f\", \"parameters\": {\"x\": 1}}]\n```").calls.at(0).arguments["x"],
            1);
  EXPECT_TRUE(read("{\"name\": \"f\"}").calls.empty()) << "without arguments it is a text";
  EXPECT_EQ(read(" I have no name.").content, "I have no name.");
  EXPECT_EQ(read(" \n a").content, "\n a") << "line ends are kept, as by the published tool";
}

struct Case {
  json target;
  json predicted;
  json rules;
  bool right;
  int named, strict, lenient, bag_of_words;
};

ToolVerdict verdict(const Case& one) {
  json row = {{"target_message",
               {{"role", "assistant"},
                {"content", ""},
                {"tool_calls", {{{"function", {{"name", "weather"}, {"arguments", one.target.dump()}}}}}}}}};
  if (!one.rules.is_null()) row["target_message_match_rules"] = json::array({{{"arguments", one.rules}}});
  const ToolMessage answer = {"", {{"weather", one.predicted, !one.predicted.is_null()}}};
  return ToolTarget(Row("x.jsonl", 1, row)).compare(answer);
}

// Situations and verdicts of the published tool's own tests, with other words.
TEST(ToolVerdict, IsThatOfThePublishedCases) {
  const std::vector<Case> cases = {
      {{{"date", "5/3/2024"}},
       {{"date", "May 3, 2024"}},
       {{"date", {{"date_match", true}}}},
       true,
       1,
       0,
       0,
       0},
      {{{"date", "5/2024"}},
       {{"date", "May 3, 2024"}},
       {{"date", {{"date_match", true}}}},
       false,
       1,
       0,
       0,
       0},
      {{{"date", "5/3/2024"}},
       {{"date", "May 3, 2024"}},
       {{"date", {{"date_match", false}}}},
       false,
       1,
       0,
       0,
       0},
      {{{"date", "5/3/2024"}},
       {{"date", "May 3, 2024"}},
       {{"date", {{"multi_choices", {"5/3/2024", "May 3 2024"}}}}},
       true,
       1,
       0,
       0,
       0},
      {{{"date", "5/3/2024"}},
       {{"date", "May 3, 2024"}},
       {{"date", {{"multi_choices", {"5/3/2023", "May 3 2023"}}}}},
       false,
       1,
       0,
       0,
       0},
      {{{"place", "helsinki."}},
       {{"place", "Helsinki, FI"}},
       {{"place", {{"regex_match", "^helsinki"}}}},
       true,
       1,
       0,
       0,
       1},
      {{{"place", "helsinki."}},
       {{"place", "Helsinki, FI"}},
       {{"place", {{"regex_match", "^turku"}}}},
       false,
       1,
       0,
       0,
       1},
      {{{"place", "oslo"}, {"unit", "kelvin"}}, {{"place", "oslo"}}, nullptr, false, 1, 0, 0, 0},
      {{{"place", "oslo"}}, {{"place", "oslo"}}, nullptr, true, 1, 1, 1, 1},
      {{{"place", "oslo"}}, {{"place", "Oslo."}}, nullptr, true, 1, 0, 1, 1},
      {{{"place", "oslo"}}, nullptr, nullptr, false, 0, 0, 0, 0},
      {{{"place", "oslo"}}, {{"place", "my oslo"}}, nullptr, false, 1, 0, 1, 1},
      {{{"place", "oslo"}}, {{"place", "oslo Norway"}}, nullptr, false, 1, 0, 0, 1},
      {{{"seconds", 45}}, {{"seconds", 45.0}}, nullptr, true, 1, 1, 1, 1},
      {{{"seconds", 45}}, json::array({45}), nullptr, false, 1, 0, 0, 0},
  };
  for (const Case& one : cases) {
    const ToolVerdict found = verdict(one);
    const std::string label = one.target.dump() + " " + one.predicted.dump() + " " + one.rules.dump();
    EXPECT_EQ(found.is_right, one.right) << label;
    EXPECT_EQ(found.expected, 1) << label;
    EXPECT_EQ(found.named, one.named) << label;
    EXPECT_EQ(found.strict, one.strict) << label;
    EXPECT_EQ(found.lenient, one.lenient) << label;
    EXPECT_EQ(found.bag_of_words, one.bag_of_words) << label;
  }
}

TEST(ToolVerdict, CallsMayComeInAnyOrderButEachOnlyOnce) {
  const auto call = [](const char* name, int x) { return ToolCall{name, {{"x", x}}}; };
  const json row = {{"target_message",
                     {{"tool_calls",
                       {{{"function", {{"name", "f"}, {"arguments", {{"x", 1}}}}}},
                        {{"function", {{"name", "f"}, {"arguments", {{"x", 2}}}}}}}}}}};
  const ToolTarget target(Row("x.jsonl", 1, row));
  EXPECT_TRUE(target.compare({"", {call("f", 2), call("f", 1)}}).is_right);
  EXPECT_FALSE(target.compare({"", {call("f", 2), call("f", 2)}}).is_right);
  const ToolVerdict one = target.compare({"", {call("f", 2)}});
  EXPECT_FALSE(one.is_right);
  EXPECT_EQ(one.strict, 1) << "single calls count by themselves";
  EXPECT_EQ(target.compare({"", {call("f", 1), call("f", 2), call("f", 1)}}).named, 2)
      << "no expected call is left for the third";
}

TEST(ToolVerdict, ATextIsRightOnlyIfItIsTheSame) {
  const ToolTarget target(Row("x.jsonl", 1, {{"target_message", {{"content", "No."}}}}));
  EXPECT_TRUE(target.compare({"No.", {}}).is_right);
  EXPECT_FALSE(target.compare({"no", {}}).is_right);
  const ToolVerdict call = target.compare({"", {{"f", json::object()}}});
  EXPECT_TRUE(call.makes_call);
  EXPECT_EQ(call.expected + call.named, 0);
}

TEST(ToolArguments, EqualityIsPythons) {
  EXPECT_TRUE(are_python_equal(true, 1));
  EXPECT_TRUE(are_python_equal({{"a", {1, 2.0}}}, {{"a", {1.0, 2}}}));
  EXPECT_FALSE(are_python_equal("1", 1));
  EXPECT_TRUE(are_standard_equal("St. John's_Wood", "st johns wood") == false) << "one quote is left";
  EXPECT_TRUE(are_standard_equal("10-12, Main/Street", "1012 mainstreet"));
  EXPECT_FALSE(are_standard_equal(json::array({"A"}), json::array({"a"})))
      << "only texts themselves are reduced";
}

TEST(ToolArguments, StopWordsGoAtTheEndsOnly) {
  EXPECT_EQ(lenient_text("You foo, you bar! you"), "foo you bar");
  EXPECT_EQ(lenient_text("the The"), "");
  EXPECT_EQ(lenient_text(""), "");
  EXPECT_EQ(lenient_text("Don't"), "dont") << "punctuation goes first, so that this is no stop word";
}

std::string target_error(const json& row) {
  try {
    const ToolTarget target(Row("x.jsonl", 7, row));
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(ToolTarget, RowsThatCannotBeScoredAreNamed) {
  EXPECT_THAT(target_error({{"messages", json::array()}}),
              AllOf(HasSubstr("x.jsonl:7"), HasSubstr("target_message")));
  EXPECT_THAT(target_error({{"target_message", {{"content", ""}}}}), HasSubstr("neither a text nor calls"));
  json row = {
      {"target_message", {{"tool_calls", {{{"function", {{"name", "f"}, {"arguments", "{\"x\": "}}}}}}}}};
  EXPECT_THAT(target_error(row), HasSubstr("tool_calls"));
  row["target_message"]["tool_calls"][0]["function"]["arguments"] = {{"x", 1}};
  row["target_message_match_rules"] = json::array();
  EXPECT_THAT(target_error(row), HasSubstr("each of the 1 calls"));
  row["target_message_match_rules"] = json::array({{{"arguments", {{"x", {{"fuzzy", true}}}}}}});
  EXPECT_THAT(target_error(row), AllOf(HasSubstr("`x`"), HasSubstr("regex_match")));
  row["target_message_match_rules"] = json::array({{{"arguments", {{"x", {{"regex_match", "("}}}}}}});
  EXPECT_THAT(target_error(row), HasSubstr("regex_match of `x`"));
  row["target_message_match_rules"] = json::array({{{"arguments", {{"x", {{"date_match", true}}}}}}});
  EXPECT_THAT(target_error(row), HasSubstr("needs an expected text"));
}

TEST(FlexibleDates, PairsAreEqualWhereDateutilSaysSo) {
  const json pairs = read_json_file(std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/dates/pairs.json");
  ASSERT_GT(pairs.size(), 300u);
  for (const json& pair : pairs) {
    EXPECT_EQ(are_the_same_date(pair[0].get<std::string>(), pair[1].get<std::string>()), pair[2].get<bool>())
        << pair[0] << " and " << pair[1];
  }
}

TEST(FlexibleDates, DigitsOfOtherScriptsAreNoTime) {
  // Full-width and Arabic-Indic digits, which Python's \d matches.
  EXPECT_NO_THROW(parse_flexible_date("\uff11\uff10:\uff13\uff10"));
  EXPECT_NO_THROW(parse_flexible_date("\u0663 pm"));
}

TEST(FlexibleDates, WhatIsMissingIsNotToday) {
  const auto date = parse_flexible_date("April 2");
  ASSERT_TRUE(date);
  EXPECT_FALSE(date->year);
  EXPECT_FALSE(are_the_same_date("April 2", "April 2, 2024"));
  EXPECT_FALSE(are_the_same_date("April", "April 2"));
  EXPECT_FALSE(parse_flexible_date("99999999999"));
  EXPECT_FALSE(parse_flexible_date("\xff"));
}

}  // namespace
}  // namespace smoe
