#include "smoe/eval/evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/model/checkpoint_reader.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Evaluator : public ::testing::Test {
 protected:
  EvaluationOptions options(int64_t limit) const {
    EvaluationOptions options;
    options.tasks = {shipped_task("arc_easy"), shipped_task("winogrande"), shipped_task("lambada_openai")};
    options.groups = {{"mean", "Mean", {"arc_easy", "winogrande", "lambada_openai"}}};
    options.data_folder = source_folder() / "examples/benchmarks";
    options.limit = limit;
    return options;
  }
  ByteTokenizer tokenizer_;
  Model model_ = make_model(tiny_stepped_config());
};

TEST_F(Evaluator, EveryBudgetGetsValuesErrorsAndPairedDifferences) {
  const EvaluationResults results = evaluate(model_, tokenizer_, options(6));
  EXPECT_THAT(results.budget_names, ::testing::ElementsAre("small", "medium", "large"));
  ASSERT_EQ(results.tasks.size(), 3u);
  for (const TaskResult& task : results.tasks) {
    EXPECT_EQ(task.num_rows, 6);
    for (const MetricResult& metric : task.metrics) {
      ASSERT_EQ(metric.budgets.size(), 3u);
      ASSERT_EQ(metric.differences.size(), 2u);
      EXPECT_NEAR(metric.differences[1].value, metric.budgets[2].value - metric.budgets[1].value,
                  1e-9 * std::abs(metric.budgets[1].value));
    }
  }
  const double mean = (results.tasks[0].primary_result().budgets[1].value +
                       results.tasks[1].primary_result().budgets[1].value +
                       results.tasks[2].primary_result().budgets[1].value) /
                      3.0;
  EXPECT_DOUBLE_EQ(results.groups.at(0).mean.budgets[1].value, mean);
}

TEST_F(Evaluator, TheResultsFileHoldsWhatIsNeededToRepeatTheRun) {
  const auto json = to_json(evaluate(model_, tokenizer_, options(3)));
  for (const char* key :
       {"smoe_version", "lm_evaluation_harness_version", "dtype", "bos_policy", "added_token", "routing",
        "segment_length", "max_length", "limit", "fewshot_seed", "tokenizer_sha256"}) {
    EXPECT_TRUE(json["context"].contains(key)) << key;
  }
  EXPECT_EQ(json["context"]["segment_length"], 4);
  const auto& task = json["tasks"]["arc_easy"];
  for (const char* key : {"data_sha256", "task_config_sha256", "rows", "num_fewshot", "truncated_contexts",
                          "empty_continuations"}) {
    EXPECT_TRUE(task.contains(key)) << key;
  }
  EXPECT_TRUE(task["metrics"]["acc"]["budgets"]["medium"].contains("stderr"));
  EXPECT_EQ(task["metrics"]["acc"]["paired_differences"][1]["to"], "large");
}

TEST_F(Evaluator, TablesNameEveryTaskAndBudget) {
  const EvaluationResults results = evaluate(model_, tokenizer_, options(3));
  for (const std::string& table : {to_terminal_table(results), to_markdown(results)}) {
    EXPECT_THAT(table, AllOf(HasSubstr("ARC-Easy"), HasSubstr("large (k=6)"), HasSubstr("acc_norm"),
                             HasSubstr("change"), HasSubstr("mean of 3")));
  }
}

TEST_F(Evaluator, OneBudgetOfManyScoresAsItDoesAmongAll) {
  EvaluationOptions all = options(5);
  EvaluationOptions one = options(5);
  one.budgets = {1};
  const auto of_all = evaluate(model_, tokenizer_, all);
  const auto of_one = evaluate(model_, tokenizer_, one);
  EXPECT_EQ(of_one.budget_names, std::vector<std::string>{"medium"});
  EXPECT_EQ(of_one.tasks[2].metrics[1].budgets[0].value, of_all.tasks[2].metrics[1].budgets[1].value);
}

TEST_F(Evaluator, TheSampleLogHasOneLineARowWithAllBudgets) {
  const TemporaryFolder folder;
  EvaluationOptions run = options(4);
  run.samples = folder.path() / "samples";
  run.log_token_ids = true;
  evaluate(model_, tokenizer_, run);
  const std::vector<Row> lines = read_rows(folder.path() / "samples/arc_easy.jsonl", 0);
  ASSERT_EQ(lines.size(), 4u);
  const auto& line = lines[0].value();
  EXPECT_EQ(line["continuations"].size(), line["choices"].size());
  EXPECT_EQ(line["contexts"].size(), 1u);
  EXPECT_EQ(line["token_ids"].size(), line["choices"].size());
  EXPECT_EQ(line["budgets"]["large"]["sums"].size(), line["choices"].size());
  EXPECT_TRUE(line["budgets"]["small"]["acc_norm"].contains("correct"));
  run.samples = folder.path() / "new/all.jsonl";
  evaluate(model_, tokenizer_, run);
  EXPECT_EQ(read_rows(folder.path() / "new/all.jsonl", 0).size(), 12u);
}

TEST_F(Evaluator, ASampleLogThatCannotBeWrittenIsRefused) {
  for (const char* path : {"/proc/all.jsonl", "/proc/samples"}) {
    EvaluationOptions run = options(1);
    run.samples = path;
    EXPECT_THROW(evaluate(model_, tokenizer_, run), Error) << path;
  }
}

TEST_F(Evaluator, TruncationsAreCounted) {
  EvaluationOptions run = options(4);
  run.tasks = {shipped_task("lambada_openai")};
  run.groups = {};
  run.max_length = 40;
  EXPECT_EQ(evaluate(model_, tokenizer_, run).tasks[0].counts.truncated, 4);
}

TEST_F(Evaluator, ATokenizerLargerThanTheModelIsRefused) {
  ModelConfig config = tiny_stepped_config();
  config.vocab_size = 200;
  const Model small = make_model(config);
  EXPECT_THAT(error_text<CheckpointError>([&] { evaluate(small, tokenizer_, options(1)); }),
              AllOf(HasSubstr("302"), HasSubstr("200")));
}

TEST(Budgets, ListsAreParsedSortedAndChecked) {
  const ModelConfig config = tiny_stepped_config();
  EXPECT_THAT(parse_budgets(config, "all"), ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(parse_budgets(config, "large,1,small"), ::testing::ElementsAre(0, 2));
  EXPECT_THAT(error_text<ConfigError>([&] { parse_budgets(config, "huge"); }),
              AllOf(HasSubstr("huge"), HasSubstr("medium")));
  ModelConfig dense = config;
  dense.architecture = Architecture::kDense;
  EXPECT_THAT(parse_budgets(dense, "all"), ::testing::ElementsAre(0));
  EXPECT_THROW(parse_budgets(dense, "small"), ConfigError);
}

TEST(SequenceLength, IsReadFromTheConfigOfTheCheckpoint) {
  EXPECT_EQ(checkpoint_sequence_length(source_folder() / "tests/golden/eval/tiny_llama"), 256);
  const TemporaryFolder folder;
  write_text(folder.path() / "config.yaml", "model: {dim: 4}\n");
  EXPECT_EQ(checkpoint_sequence_length(folder.path()), std::nullopt);
  write_text(folder.path() / "config.yaml", "data: {sequence_length: many}\n");
  EXPECT_THAT(error_text<ConfigError>([&] { checkpoint_sequence_length(folder.path()); }),
              HasSubstr("data.sequence_length"));
}

}  // namespace
}  // namespace smoe
