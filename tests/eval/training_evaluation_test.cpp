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
      AllOf(HasSubstr("arc_easy"), HasSubstr("/nowhere")));
  EXPECT_THAT(TrainingEvaluation(options(4), tiny_llama() / "tokenizer.model", "/tmp").describe(),
              AllOf(HasSubstr("arc_easy: 4 rows"), HasSubstr("lambada_openai: 4 rows")));
}

}  // namespace
}  // namespace smoe
