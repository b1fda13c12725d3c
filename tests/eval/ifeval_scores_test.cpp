#include "smoe/eval/ifeval_scores.h"

#include <gtest/gtest.h>

#include <map>

namespace smoe {
namespace {

// Two prompts: one with three instructions, of which one needs a model; one with only such an instruction.
std::map<std::string_view, double> values() {
  const IfevalKind plain{"punctuation:no_comma", false};
  const IfevalKind model{"change_case:english_capital", true};
  const std::vector<std::vector<IfevalVerdict>> verdicts = {
      {{plain, true, true}, {plain, false, true}, {model, false, false}}, {{model, true, true}}};
  std::map<std::string_view, double> result;
  for (const IfevalScore& score : ifeval_scores()) {
    result[score.name] = estimate(ifeval_series(score, verdicts)).value;
  }
  return result;
}

TEST(IfevalScores, PromptsNeedAllAndInstructionsArePooled) {
  const auto scores = values();
  EXPECT_DOUBLE_EQ(scores.at("prompt_level_strict_acc"), 0.5);
  EXPECT_DOUBLE_EQ(scores.at("inst_level_strict_acc"), 0.5);
  EXPECT_DOUBLE_EQ(scores.at("prompt_level_loose_acc"), 0.5);
  EXPECT_DOUBLE_EQ(scores.at("inst_level_loose_acc"), 0.75);
}

TEST(IfevalScores, WithoutModelsOnlyTheOtherInstructionsCount) {
  const auto scores = values();
  EXPECT_DOUBLE_EQ(scores.at("prompt_level_strict_acc_without_models"), 0.0);
  EXPECT_DOUBLE_EQ(scores.at("inst_level_strict_acc_without_models"), 0.5);
  EXPECT_DOUBLE_EQ(scores.at("prompt_level_loose_acc_without_models"), 1.0);
  EXPECT_DOUBLE_EQ(scores.at("inst_level_loose_acc_without_models"), 1.0);
}

}  // namespace
}  // namespace smoe
