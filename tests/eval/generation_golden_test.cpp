// Agreement of generated answers, and of MMLU, with the real lm-evaluation-harness:
// tests/golden/eval/make_generation_golden.py ran it on the model that ships there.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/json.h"
#include "smoe/eval/evaluator.h"
#include "smoe/eval/task_library.h"
#include "smoe/model/checkpoint_reader.h"

namespace smoe {
namespace {

class GenerationGolden : public ::testing::Test {
 protected:
  // The model is too small for more.
  void SetUp() override { at::set_num_threads(1); }

  static std::filesystem::path folder() { return source_folder() / "tests/golden/eval"; }
  static const nlohmann::json& golden() {
    static const nlohmann::json value = read_json_file(folder() / "generation_golden.json");
    return value;
  }

  // The shipped task with what the golden run changed.
  static TaskConfig gsm8k(const nlohmann::json& run) {
    TaskConfig task = shipped_task("gsm8k");
    for (const auto& stop : run["stops"]) task.generation.stops.push_back(stop);
    if (run["filters"].is_null()) return task;
    task.test_file = "gsm8k/words.jsonl";
    task.answers.clear();
    for (const auto& filter : run["filters"]) {
      task.answers.push_back({filter[0], AnswerReading::kRegex, {filter[1], filter[2]}});
    }
    task.primary = metric_names(task).front();
    return task;
  }

  EvaluationOptions options() const {
    EvaluationOptions options;
    options.data_folder = folder() / "data";
    options.bos = BosPolicy::kAlways;
    options.max_length = golden()["max_length"];
    options.max_new_tokens = golden()["max_new_tokens"].get<int64_t>();
    return options;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(checkpoint_tokenizer(folder() / "tiny_llama"));
  Model model_ = load_model(folder() / "tiny_llama", at::kCPU);
};

TEST_F(GenerationGolden, PromptsIdsAnswersAndScoresAreTheSame) {
  int64_t truncated = 0;
  double right = 0.0;
  for (const auto& run : golden()["gsm8k"]) {
    const TemporaryFolder logs;
    EvaluationOptions run_options = options();
    run_options.tasks = {gsm8k(run)};
    run_options.num_shots = run["shots"].get<int64_t>();
    run_options.samples = logs.path();
    run_options.log_token_ids = true;
    const EvaluationResults results = evaluate(model_, *tokenizer_, run_options);
    ASSERT_TRUE(results.is_complete()) << results.failures.front().message;
    truncated += results.tasks[0].counts.truncated;
    const std::vector<Row> rows = read_rows(logs.path() / "gsm8k.jsonl", 0);
    ASSERT_EQ(rows.size(), run["rows"].size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto& ours = rows[i].value();
      const auto& theirs = run["rows"][i];
      EXPECT_EQ(ours["contexts"][0], theirs["prompt"]);
      EXPECT_EQ(ours["token_ids"]["prompt"], theirs["ids"]);
      const auto& sample = ours["budgets"]["dense"];
      EXPECT_EQ(sample["texts"][0], theirs["text"]);
      for (const auto& [filter, answer] : theirs["answers"].items()) {
        EXPECT_EQ(sample["answers"]["exact_match," + filter]["answer"], answer["answer"]);
        EXPECT_EQ(sample["answers"]["exact_match," + filter]["correct"], answer["exact_match"] == 1.0);
        right += answer["exact_match"].get<double>();
      }
    }
    for (const MetricResult& metric : results.tasks[0].metrics) {
      EXPECT_EQ(metric.budgets[0].value, run["scores"][metric.name].get<double>()) << metric.name;
    }
  }
  EXPECT_GT(truncated, 0) << "the golden files should cover truncation";
  EXPECT_GT(right, 0.0) << "the golden files should cover right answers";
}

TEST_F(GenerationGolden, MmluHasTheSamePromptsSumsAndAccuracy) {
  const auto& golden_rows = golden()["mmlu"]["rows"];
  const TemporaryFolder logs;
  EvaluationOptions run = options();
  run.tasks = {shipped_task("mmlu")};
  run.samples = logs.path();
  const EvaluationResults results = evaluate(model_, *tokenizer_, run);
  ASSERT_TRUE(results.is_complete()) << results.failures.front().message;
  EXPECT_EQ(results.tasks[0].primary_result().budgets[0].value, golden()["mmlu"]["acc"].get<double>());
  const std::vector<Row> rows = read_rows(logs.path() / "mmlu.jsonl", 0);
  ASSERT_EQ(rows.size(), golden_rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& ours = rows[i].value();
    EXPECT_EQ(ours["contexts"][0], golden_rows[i]["context"]);
    EXPECT_EQ(ours["continuations"], golden_rows[i]["continuations"]);
    for (size_t j = 0; j < 4; ++j) {
      EXPECT_NEAR(ours["budgets"]["dense"]["sums"][j].get<double>(), golden_rows[i]["sums"][j].get<double>(),
                  1e-4);
    }
  }
}

}  // namespace
}  // namespace smoe
