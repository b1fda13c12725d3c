#include "smoe/eval/training_evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;

std::filesystem::path tiny_llama() { return source_folder() / "tests/golden/eval/tiny_llama"; }

// The golden tokenizer has more ids than the tiny models of these tests.
ModelConfig config_for_tokenizer() {
  ModelConfig config = tiny_stepped_config();
  config.vocab_size = 384;
  return config;
}

EvaluationOptions options(int64_t limit) {
  EvaluationOptions options;
  options.tasks = {shipped_task("arc_easy"), shipped_task("lambada_openai")};
  options.groups = {{"both", "Both", {"arc_easy", "lambada_openai"}}};
  options.data_folder = source_folder() / "examples/benchmarks";
  options.limit = limit;
  return options;
}

TEST(TrainingEvaluation, NamesEveryMetricAtEveryBudgetAndKeepsTheResults) {
  const TemporaryFolder folder;
  const Model model = make_model(config_for_tokenizer());
  const TrainingEvaluation evaluation(options(4), tiny_llama() / "tokenizer.model",
                                      folder.path() / "results");
  const auto values = evaluation.run(model, 30);
  for (const char* budget : {"small", "medium", "large"}) {
    EXPECT_THAT(values, Contains(Key(fmt::format("arc_easy/acc/{}", budget))));
    EXPECT_THAT(values, Contains(Key(fmt::format("lambada_openai/perplexity/{}", budget))));
    EXPECT_THAT(values, Contains(Key(fmt::format("both/mean/{}", budget))));
  }
  const auto json = nlohmann::json::parse(read_file(folder.path() / "results/step-00000030.json"));
  EXPECT_EQ(json["tasks"]["arc_easy"]["metrics"]["acc"]["budgets"]["medium"]["value"],
            values.at("arc_easy/acc/medium"));
  // The same model gives the same numbers again.
  EXPECT_EQ(evaluation.run(model, 60), values);
}

TEST(TrainingEvaluation, SaysBeforeTrainingWhatIsNotThere) {
  EvaluationOptions without_data = options(4);
  without_data.data_folder = "/nowhere";
  EXPECT_THAT(
      error_text<Error>([&] { TrainingEvaluation(without_data, tiny_llama() / "tokenizer.model", "/tmp"); }),
      AllOf(HasSubstr("arc_easy"), HasSubstr("/nowhere"), HasSubstr("`evaluation.data` of a training run")));
  EXPECT_THAT(TrainingEvaluation(options(4), tiny_llama() / "tokenizer.model", "/tmp").describe(),
              AllOf(HasSubstr("arc_easy: 4 rows"), HasSubstr("lambada_openai: 4 rows")));
}

// What stands in the way of a run is set in its config, not by options of smoe-eval.
TEST(TrainingEvaluation, ErrorsNameTheKeysOfTheConfig) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_text<ConfigError>([&] { TaskLibrary library(folder.path()); }),
              HasSubstr("`evaluation.task_folder`"));
  ModelConfig dense = config_for_tokenizer();
  dense.architecture = Architecture::kDense;
  EXPECT_THAT(error_text<ConfigError>([&] { parse_budgets(dense, "small"); }),
              AllOf(HasSubstr("`small`"), HasSubstr("`evaluation.budgets`")));
  EXPECT_THAT(error_text<ConfigError>([&] { leading_token(ByteTokenizer(false), BosPolicy::kAlways); }),
              HasSubstr("`evaluation.bos`"));
  write_text(folder.path() / "qa.jsonl", "{\"q\": \"one\"}\n");
  EvaluationOptions short_rows;
  TaskConfig& task = short_rows.tasks.emplace_back();
  task.name = "qa";
  task.kind = TaskKind::kGenerate;
  task.test_file = "qa.jsonl";
  task.row.prompt = "{q} is";
  task.generation.max_new_tokens = 8;
  short_rows.data_folder = folder.path();
  short_rows.max_length = 8;
  const EvaluationResults results = evaluate(make_model(tiny_stepped_config()), ByteTokenizer(), short_rows);
  ASSERT_EQ(results.failures.size(), 1U);
  EXPECT_THAT(results.failures[0].message, HasSubstr("`evaluation.max_new_tokens`"));
}

}  // namespace
}  // namespace smoe
