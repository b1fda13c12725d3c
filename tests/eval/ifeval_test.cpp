#include "smoe/eval/ifeval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smoe/core/error.h"

namespace smoe {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json row_of(const json& ids, const json& kwargs) {
  return {{"key", 1005}, {"prompt", "Do it."}, {"instruction_id_list", ids}, {"kwargs", kwargs}};
}

IfevalVerdict check(const std::string& id, const json& kwargs, const std::string& response) {
  return check_ifeval(build_ifeval_item(row_of(json::array({id}), json::array({kwargs})), "row"), response)
      .front();
}

std::string error_of(const json& row) {
  try {
    build_ifeval_item(row, "data.jsonl:3");
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of(const std::string& id, const json& kwargs) {
  return error_of(row_of(json::array({id}), json::array({kwargs})));
}

// One response that follows and one that does not, for every kind.
struct Example {
  std::string id;
  json kwargs;
  std::string follows;
  std::string breaks;
};

const std::string kEnglish = "the old library opens at nine and everyone in the village may read there";
const std::string kLoudEnglish = "THE OLD LIBRARY OPENS AT NINE AND EVERYONE IN THE VILLAGE MAY READ THERE";

const std::vector<Example>& examples() {
  static const json none = json::object();
  static const std::vector<Example> all = {
      {"change_case:capital_word_frequency",
       {{"capital_frequency", 2}, {"capital_relation", "at least"}},
       "NASA and ESA",
       "NASA and Esa"},
      {"change_case:english_capital", none, kLoudEnglish, kEnglish},
      {"change_case:english_lowercase", none, kEnglish, kLoudEnglish},
      {"combination:repeat_prompt", {{"prompt_to_repeat", "Say A."}}, "say a. Fine", "Well: Say A."},
      {"combination:two_responses", none, "One.\n******\nTwo.", "One.******One."},
      {"detectable_content:number_placeholders", {{"num_placeholders", 2}}, "[a] [b c]", "[a\nb] [c]"},
      {"detectable_content:postscript", {{"postscript_marker", "P.S."}}, "Bye\np. s. more", "Bye PS more"},
      {"detectable_format:constrained_response", none, "Well. My answer is no.", "my answer is no."},
      {"detectable_format:json_format", none, "```json\n{\"a\": [1]}\n```", "```json\n{'a': 1}\n```"},
      {"detectable_format:multiple_sections",
       {{"section_spliter", "Section"}, {"num_sections", 2}},
       "Section 1\na\nSection 2\nb",
       "Section 1\na\nSECTION 2\nb"},
      {"detectable_format:number_bullet_lists", {{"num_bullets", 2}}, "* a\n- b", "* a\n+ b\n** c"},
      {"detectable_format:number_highlighted_sections", {{"num_highlights", 2}}, "*a* *b c*", "*a* ** ** b"},
      {"detectable_format:title", none, "<<A poem>>\nOh", "<< >>\nOh"},
      {"keywords:existence", {{"keywords", json::array({"sun", "moon"})}}, "Sunny MOON", "Sunny day"},
      {"keywords:forbidden_words", {{"forbidden_words", json::array({"can"})}}, "cannot", "I Can!"},
      {"keywords:frequency",
       {{"keyword", "knot"}, {"frequency", 2}, {"relation", "at least"}},
       "Knots, knot",
       "a knot"},
      {"keywords:letter_frequency",
       {{"letter", "q"}, {"let_frequency", 2}, {"let_relation", "less than"}},
       "quiet",
       "Quick quiz"},
      {"language:response_language",
       {{"language", "de"}},
       "Die alte Bibliothek öffnet um neun Uhr, und alle im Dorf dürfen dort lesen.",
       kEnglish},
      {"length_constraints:nth_paragraph_first_word",
       {{"num_paragraphs", 2}, {"nth_paragraph", 2}, {"first_word", "It"}},
       "One.\n\n\"it's late.",
       "One.\n\nLate."},
      {"length_constraints:number_paragraphs", {{"num_paragraphs", 2}}, "A *** B\n***\n", "A *** *** B"},
      {"length_constraints:number_sentences",
       {{"num_sentences", 2}, {"relation", "less than"}},
       "One only, Mr. Hale.",
       "One. Two."},
      {"length_constraints:number_words",
       {{"num_words", 3}, {"relation", "at least"}},
       "one-two three",
       "one two"},
      {"punctuation:no_comma", none, "a; b", "a, b"},
      {"startend:end_checker", {{"end_phrase", "The END"}}, "So. The end\"", "The end."},
      {"startend:quotation", none, " \"Hi\"\n", "\"Hi"},
  };
  return all;
}

TEST(Ifeval, EveryKindIsFollowedAndBroken) {
  ASSERT_EQ(examples().size(), 25);
  for (size_t i = 0; i < examples().size(); ++i) {
    const Example& example = examples()[i];
    EXPECT_EQ(ifeval_kinds()[i].id, example.id);
    const IfevalVerdict good = check(example.id, example.kwargs, example.follows);
    EXPECT_TRUE(good.strict && good.loose) << example.id;
    const IfevalVerdict bad = check(example.id, example.kwargs, example.breaks);
    EXPECT_FALSE(bad.strict || bad.loose) << example.id;
  }
}

TEST(Ifeval, ABlankResponseFollowsNothing) {
  for (const Example& example : examples()) {
    const IfevalVerdict verdict = check(example.id, example.kwargs, " \n\u00a0");
    EXPECT_FALSE(verdict.strict || verdict.loose) << example.id;
  }
}

TEST(Ifeval, FiveKindsNeedOutsideModels) {
  int64_t count = 0;
  for (const IfevalKind& kind : ifeval_kinds()) count += kind.needs_outside_model ? 1 : 0;
  EXPECT_EQ(count, 5);
}

TEST(Ifeval, LooseForgivesFirstAndLastLinesAndAsterisks) {
  const auto strict_and_loose = [](const std::string& id, const json& kwargs, const std::string& response) {
    const IfevalVerdict verdict = check(id, kwargs, response);
    return std::pair(verdict.strict, verdict.loose);
  };
  const std::pair only_loose(false, true);
  const json none = json::object();
  EXPECT_EQ(strict_and_loose("startend:quotation", none, "Sure, here:\n\"Hi\""), only_loose);
  EXPECT_EQ(strict_and_loose("startend:quotation", none, "\"Hi\"\nHope it helps"), only_loose);
  EXPECT_EQ(strict_and_loose("startend:quotation", none, "Sure:\n\"Hi\"\nBye"), only_loose);
  EXPECT_EQ(strict_and_loose("startend:quotation", none, "**\"Hi\"**"), only_loose);
  EXPECT_EQ(strict_and_loose("startend:quotation", none, "Sure:\n*\"Hi\"*\nBye"), only_loose);
  EXPECT_EQ(strict_and_loose("startend:quotation", none, "Sure:\nYes:\n\"Hi\""), std::pair(false, false));
  EXPECT_EQ(strict_and_loose("detectable_format:constrained_response", none, "My *answer* is yes."),
            only_loose);
}

TEST(Ifeval, DoubleAsterisksCountTwice) {
  // "**a**" holds "**" pairs that are blank and, by the other pattern, one span.
  EXPECT_TRUE(
      check("detectable_format:number_highlighted_sections", {{"num_highlights", 2}}, "**a** *b*").strict);
}

TEST(Ifeval, BlankParagraphsLowerTheCountButMoveNoIndex) {
  const json kwargs = {{"num_paragraphs", 2}, {"nth_paragraph", 2}, {"first_word", "two"}};
  EXPECT_TRUE(check("length_constraints:nth_paragraph_first_word", kwargs, "one\n\ntwo").strict);
  EXPECT_FALSE(check("length_constraints:nth_paragraph_first_word", kwargs, "one\n\n \n\ntwo").strict);
}

TEST(Ifeval, SignsAreCountedLikeLetters) {
  const json kwargs = {{"letter", "#"}, {"let_frequency", 2}, {"let_relation", "at least"}};
  EXPECT_TRUE(check("keywords:letter_frequency", kwargs, "# a #").strict);
  EXPECT_FALSE(check("keywords:letter_frequency", kwargs, "# a").strict);
}

TEST(Ifeval, ArgumentsOfOtherInstructionsAndNullsAreNoMatter) {
  const json kwargs = {{"num_bullets", 1.0}, {"num_words", nullptr}, {"keywords", nullptr}};
  EXPECT_TRUE(check("detectable_format:number_bullet_lists", kwargs, "- a").strict);
}

TEST(Ifeval, MissingArgumentsAreErrorsThatNameTheItem) {
  EXPECT_THAT(error_of("keywords:frequency", {{"keyword", "a"}, {"relation", "at least"}}),
              AllOf(HasSubstr("data.jsonl:3 (key 1005)"), HasSubstr("keywords:frequency"),
                    HasSubstr("\"frequency\" is missing")));
  // What Python takes for false counts as missing.
  for (const json& value : {json(nullptr), json(0), json(false), json("")}) {
    EXPECT_THAT(error_of("length_constraints:number_paragraphs", {{"num_paragraphs", value}}),
                HasSubstr("counts as missing"));
  }
  EXPECT_THAT(error_of("keywords:existence", {{"keywords", json::array()}}), HasSubstr("counts as missing"));
}

TEST(Ifeval, ArgumentsOutOfRangeAreErrors) {
  EXPECT_THAT(error_of("length_constraints:number_words", {{"num_words", 3}, {"relation", "exactly"}}),
              AllOf(HasSubstr("\"exactly\""), HasSubstr("\"at least\" or \"less than\"")));
  EXPECT_THAT(error_of("detectable_format:number_bullet_lists", {{"num_bullets", -2}}), HasSubstr("-2"));
  EXPECT_THAT(error_of("detectable_format:number_bullet_lists", {{"num_bullets", 1.5}}), HasSubstr("1.5"));
  EXPECT_THAT(error_of("keywords:letter_frequency",
                       {{"letter", "ab"}, {"let_frequency", 2}, {"let_relation", "at least"}}),
              HasSubstr("one character"));
  EXPECT_THAT(error_of("length_constraints:nth_paragraph_first_word",
                       {{"num_paragraphs", 2}, {"nth_paragraph", 3}, {"first_word", "a"}}),
              HasSubstr("at most num_paragraphs"));
  EXPECT_THAT(error_of("keywords:existence", {{"keywords", "word"}}), HasSubstr("a list of texts"));
  EXPECT_THAT(error_of("keywords:existence", {{"keywords", json::array({"(a"})}}),
              AllOf(HasSubstr("key 1005"), HasSubstr("(a")));
}

TEST(Ifeval, MalformedRowsAreErrors) {
  EXPECT_THAT(error_of("keywords:nonsense", json::object()),
              AllOf(HasSubstr("unknown instruction \"keywords:nonsense\""), HasSubstr("startend:quotation")));
  EXPECT_THAT(error_of(json{{"key", 1}, {"prompt", "a"}}), HasSubstr("instruction_id_list"));
  EXPECT_THAT(error_of(json::array()), HasSubstr("\"prompt\""));
  EXPECT_THAT(error_of(row_of(json::array({"punctuation:no_comma"}), json::array())), HasSubstr("0 in"));
  EXPECT_THAT(error_of(row_of(json::array({"punctuation:no_comma"}), json::array({3}))),
              HasSubstr("must be an object"));
}

TEST(Ifeval, ResponsesThatAreNotUtf8AreErrors) {
  EXPECT_THROW(check("detectable_format:title", json::object(), "<<\xff>>"), DataError);
}

}  // namespace
}  // namespace smoe
