// Agreement with lm-evaluation-harness's own filters, metric and MATH functions
// (tests/golden/answers/make_golden.py).
#include <gtest/gtest.h>

#include <filesystem>

#include "smoe/core/json.h"
#include "smoe/eval/answer_filters.h"
#include "smoe/eval/math_answers.h"

namespace smoe {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json value =
      read_json_file(std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/answers/golden.json");
  return value;
}

TEST(AnswersGolden, RegexFilterFindsTheHarnessesAnswers) {
  ASSERT_GT(golden()["filters"].size(), 400);
  for (const nlohmann::json& row : golden()["filters"]) {
    const RegexFilter filter({row["pattern"], row["match"]});
    EXPECT_EQ(filter.apply(row["response"].get<std::string>()), row["expected"]) << row;
  }
}

TEST(AnswersGolden, RemoveWhitespaceStripsLikeTheHarness) {
  for (const nlohmann::json& row : golden()["whitespace"]) {
    EXPECT_EQ(remove_whitespace(row["response"].get<std::string>()), row["expected"]) << row;
  }
}

TEST(AnswersGolden, ExactMatchScoresLikeTheHarness) {
  ASSERT_GT(golden()["exact_match"].size(), 200);
  for (const nlohmann::json& row : golden()["exact_match"]) {
    const ExactMatch metric({.regexes_to_ignore = row["regexes_to_ignore"],
                             .ignore_case = row["ignore_case"],
                             .ignore_punctuation = row["ignore_punctuation"]});
    const std::vector<std::string> references = row["references"];
    EXPECT_EQ(metric.any_equal(row["prediction"].get<std::string>(), references), row["expected"]) << row;
  }
}

TEST(AnswersGolden, MathAnswersAreNormalizedLikeTheHarness) {
  ASSERT_GE(golden()["math"]["normalized"].size(), 600);
  for (const nlohmann::json& row : golden()["math"]["normalized"]) {
    EXPECT_EQ(normalize_minerva_answer(row["answer"].get<std::string>()), row["expected"]) << row;
  }
}

TEST(AnswersGolden, MathAnswersAreFoundLikeTheHarness) {
  for (const nlohmann::json& row : golden()["math"]["responses"]) {
    EXPECT_EQ(minerva_answer(row["response"].get<std::string>()), row["expected"]) << row;
  }
}

TEST(AnswersGolden, BoxesAreFoundLikeTheHarness) {
  for (const nlohmann::json& row : golden()["math"]["boxes"]) {
    const std::optional<std::string> boxed = last_boxed(row["solution"].get<std::string>());
    EXPECT_EQ(boxed ? nlohmann::json(*boxed) : nlohmann::json(), row["expected"]) << row;
  }
}

}  // namespace
}  // namespace smoe
