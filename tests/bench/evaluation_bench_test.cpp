#include "smoe/bench/evaluation_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/bench_test_support.h"
#include "smoe/core/error.h"
#include "smoe/eval/task_library.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

EvaluationBenchOptions small_options(const TemporaryFolder& folder) {
  EvaluationBenchOptions options;
  options.model = small_bench_config().model;
  options.model.vocab_size = 900;
  options.tokenizer =
      std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/tokenizers/sentencepiece_bpe.model";
  options.data_folder = folder.path();
  folder.write(
      "arc_easy/test.jsonl",
      R"({"question": "What is wet?", "choices": {"text": ["water, as a rule", "sand"], "label": ["A", "B"]}, "answerKey": "A"}
{"question": "And what is hot?", "choices": {"text": ["ice", "snow", "the fire"], "label": ["A", "B", "C"]}, "answerKey": "C"}
)");
  folder.write("lambada_openai/test.jsonl", R"({"text": "The last word of this sentence is end"})"
                                            "\n");
  options.tasks = TaskLibrary(TaskLibrary::default_folder()).select({"arc_easy", "lambada_openai"}).tasks;
  options.num_shots = 0;
  options.naive_rows = 2;
  options.repetitions = 1;
  return options;
}

TEST(EvaluationBench, AllContestantsGiveTheSameScores) {
  const TemporaryFolder folder;
  const EvaluationBenchReport report = run_evaluation_bench(small_options(folder));
  // Two tasks, two budgets, three contestants.
  ASSERT_EQ(report.speed.rows.size(), 12U);
  ASSERT_EQ(report.largest_difference.size(), 3U);
  for (const auto& [name, difference] : report.largest_difference) EXPECT_LT(difference, 1e-3) << name;
  EXPECT_EQ(report.speed.rows[0].items, 2);
  EXPECT_EQ(report.speed.rows[11].items, 1);
  EXPECT_EQ(report.speed.rows[11].name, "naive grouped-mm");
  EXPECT_EQ(report.speed.rows[11].labels,
            (std::map<std::string, std::string>{{"k", "5"}, {"task", "lambada_openai"}}));
  EXPECT_THAT(evaluation_bench_table(report), AllOf(HasSubstr("arc_easy"), HasSubstr("naive: ")));
  EXPECT_THAT(speed_json_lines(report.speed), HasSubstr("\"items\":2"));
}

template <class Change>
std::string error_after(const Change& change) {
  const TemporaryFolder folder;
  EvaluationBenchOptions options = small_options(folder);
  change(options);
  try {
    run_evaluation_bench(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(EvaluationBench, RefusesWhatItCannotCompare) {
  EXPECT_THAT(error_after([](EvaluationBenchOptions& options) { options.model.vocab_size = 100; }),
              AllOf(HasSubstr("model.vocab_size is 100"), HasSubstr("sentencepiece_bpe.model")));
  EXPECT_THAT(error_after([](EvaluationBenchOptions& options) {
                options.tasks = TaskLibrary(TaskLibrary::default_folder()).select({"gsm8k_cot"}).tasks;
              }),
              AllOf(HasSubstr("gsm8k_cot"), HasSubstr("generates answers")));
  EXPECT_THAT(
      error_after([](EvaluationBenchOptions& options) { options.model.architecture = Architecture::kDense; }),
      AllOf(HasSubstr("stepped_moe"), HasSubstr("dense")));
}

}  // namespace
}  // namespace smoe
