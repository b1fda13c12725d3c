// Tool use from a file in the layout of MMAU to scores; the rows are made up.
#include "smoe/eval/tool_dialogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"
#include "smoe/eval/evaluator.h"
#include "smoe/eval/response_scores.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::filesystem::path fixture() { return source_folder() / "tests/eval/mmau_fixture"; }

std::vector<EvaluationItem> items(PromptLayout layout) {
  ItemOptions options = {fixture(), 0, 0, 1234, layout, {}};
  if (layout != PromptLayout::kText) options.system_prompt = "Be brief.";
  return build_items(shipped_task("mmau_tool_execution"), options);
}

TEST(ToolDialogue, FunctionsStandInTheSystemMessageAndResultsInTheUsers) {
  const auto rows = items(PromptLayout::kTurns);
  ASSERT_EQ(rows.size(), 4u);
  const Conversation& first = rows[0].dialogue;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_THAT(first[0].content,
              AllOf(HasSubstr("Be brief.\n\nYou help with the day.\n\n# Tools"),
                    HasSubstr("\"name\":\"get_weather\""), HasSubstr("\"name\":\"set_alarm\"")));
  EXPECT_EQ(rows[0].pairs[0].context, "How is the weather in Paris on April 2, 2024?");
  const Conversation& third = rows[2].dialogue;
  ASSERT_EQ(third.size(), 5u);
  EXPECT_EQ(third[2].role, ChatRole::kAssistant);
  EXPECT_EQ(third[2].content,
            "<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{\"location\":\"Oslo\"}}\n</tool_call>");
  EXPECT_EQ(third[3].content, "<tool_response>\n{\"degrees\": 4}\n</tool_response>");
  EXPECT_EQ(rows[3].pairs[0].context, "<tool_response>\nno date given\n</tool_response>");
}

TEST(ToolDialogue, WithoutATemplateItIsPlainText) {
  const auto rows = items(PromptLayout::kText);
  EXPECT_TRUE(rows[2].dialogue.empty());
  EXPECT_THAT(rows[2].pairs[0].context,
              AllOf(HasSubstr("\n\nUser: Weather in Oslo?\n\nAssistant: <tool_call>"),
                    EndsWith("User: Thanks. What is your name?\n\nAssistant:")));
}

TEST(ToolDialogue, ScoresAreSharesOfRowsAndOfExpectedCalls) {
  const TaskConfig task = shipped_task("mmau_tool_execution");
  const auto rows = items(PromptLayout::kTurns);
  const ResponseScorer scorer(task, nullptr);
  scorer.check(rows);
  const auto answer = [](const std::string& text) { return RowAnswers{{text, FinishReason::kEos, 1}}; };
  const BudgetScores scores = scorer.score(
      rows,
      {answer(
           R"(<tool_call>{"name": "get_weather", "arguments": {"location": "paris", "date": "4/2/24"}}</tool_call>)"),
       answer(
           R"(<tool_call>{"name": "set_alarm", "arguments": {"time": "7 AM", "days": ["Monday", "Tuesday"]}}
</tool_call><tool_call>{"name": "get_weather", "arguments": {"location": "New York, NY"}}</tool_call>)"),
       answer("I have no name."), answer("It will rain.")});
  const auto names = metric_names(task);
  const auto value = [&](const std::string& name) {
    const auto place = std::ranges::find(names, name) - names.begin();
    return estimate(scores.series.at(static_cast<size_t>(place))).value;
  };
  EXPECT_THAT(scores.series[0].values, ElementsAre(1.0, 1.0, 1.0, 0.0));
  EXPECT_DOUBLE_EQ(value("func_name_accuracy"), 3.0 / 4.0);
  EXPECT_DOUBLE_EQ(value("strict_accuracy"), 0.0);
  EXPECT_DOUBLE_EQ(value("bow_accuracy"), 1.0 / 4.0) << "New York, NY holds all words of New York";
  EXPECT_DOUBLE_EQ(value("func_intent_recall"), 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(value("func_intent_precision"), 1.0);
}

TEST(ToolDialogue, RunsAtEveryBudgetFromTheShippedTask) {
  ModelConfig config = tiny_stepped_config();
  EvaluationOptions options;
  options.tasks = {shipped_task("mmau_tool_execution")};
  options.data_folder = fixture();
  options.max_new_tokens = 4;
  const EvaluationResults results = evaluate(make_model(config), ByteTokenizer(), options);
  ASSERT_TRUE(results.is_complete()) << results.failures.front().message;
  EXPECT_EQ(results.tasks[0].primary, "accuracy");
  EXPECT_EQ(results.tasks[0].primary_result().budgets.size(), 3u);
  // No call is made, so that precision has nothing to count.
  EXPECT_EQ(results.tasks[0].metrics.back().budgets[0].value, 0.0);
}

TEST(ToolDialogue, BadMessagesAreNamed) {
  const auto error = [](const nlohmann::json& row) {
    return error_text<DataError>([&] { tool_dialogue({}, Row("x.jsonl", 3, row)); });
  };
  EXPECT_THAT(error({{"tools", 1}}), AllOf(HasSubstr("x.jsonl:3"), HasSubstr("messages")));
  EXPECT_THAT(error({{"messages", {{{"role", "robot"}, {"content", "x"}}}}}), HasSubstr("robot"));
  EXPECT_THAT(error({{"messages",
                      {{{"role", "user"}, {"content", "x"}}, {{"role", "assistant"}, {"content", "y"}}}}}),
              HasSubstr("must be of the role user"));
  EXPECT_THAT(error({{"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}}),
              HasSubstr("only texts"));
}

}  // namespace
}  // namespace smoe
