// Agreement with the real lm-evaluation-harness for code, instructions, MATH, TriviaQA, WikiText and chat
// templates: tests/golden/eval/make_task_golden.py ran it on the model that ships there.
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

class TaskGolden : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }

  static std::filesystem::path folder() { return source_folder() / "tests/golden/eval"; }
  static const nlohmann::json& golden() {
    static const nlohmann::json value = read_json_file(folder() / "task_golden.json");
    return value;
  }
  EvaluationOptions options() const {
    EvaluationOptions options;
    options.data_folder = folder() / "data";
    options.max_length = golden()["max_length"];
    options.max_new_tokens = golden()["max_new_tokens"].get<int64_t>();
    options.log_token_ids = true;
    options.samples = logs_.path();
    return options;
  }
  EvaluationOptions chat_options(const nlohmann::json& run) const {
    EvaluationOptions chat = options();
    chat.chat_template = load_chat_template(folder() / "tags/chat_template.yaml");
    chat.chat_layout = enum_from_name<PromptLayout>(run["layout"].get<std::string>()).value();
    chat.num_shots = run["shots"].get<int64_t>();
    return chat;
  }

  // Runs one task, expects the harness's prompts (or the ids alone), texts, values of rows and scores.
  TaskResult expect_same(const nlohmann::json& run, const Tokenizer& tokenizer, EvaluationOptions run_options,
                         const TaskConfig& task) {
    run_options.tasks = {task};
    run_options.num_shots = run["shots"].get<int64_t>();
    const EvaluationResults results = evaluate(model_, tokenizer, run_options);
    if (!results.is_complete()) {
      ADD_FAILURE() << results.failures.front().message;
      return {};
    }
    const std::vector<Row> rows = read_rows(logs_.path() / (task.name + ".jsonl"), 0);
    EXPECT_EQ(rows.size(), run["rows"].size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto& ours = rows[i].value();
      const auto& theirs = run["rows"][i];
      if (!run_options.chat_template) {
        EXPECT_EQ(ours["contexts"][0], theirs["prompt"]);
      }
      // The harness cuts prompts where it batches them, and records them whole.
      std::vector<int32_t> ids = theirs["ids"];
      const std::vector<int32_t> cut = ours["token_ids"]["prompt"];
      EXPECT_LE(cut.size(), ids.size());
      ids.erase(ids.begin(), ids.end() - std::ssize(cut));
      EXPECT_EQ(cut, ids) << task.name << " row " << i;
      EXPECT_EQ(ours["budgets"]["dense"]["texts"][0], theirs["text"]) << task.name << " row " << i;
      if (!theirs.contains("value")) continue;
      EXPECT_EQ(ours["budgets"]["dense"]["metrics"][task.primary][0], theirs["value"].get<double>())
          << task.name << " row " << i;
    }
    return results.tasks.at(0);
  }
  // `name` is the harness's, without its filter where ours has none.
  static void expect_score(const TaskResult& result, const std::string& name, double expected) {
    const auto found = std::ranges::find(result.metrics, name, &MetricResult::name);
    ASSERT_NE(found, result.metrics.end()) << name;
    EXPECT_DOUBLE_EQ(found->budgets[0].value, expected) << name;
  }

  TemporaryFolder logs_;
  std::unique_ptr<Tokenizer> sentencepiece_ = load_tokenizer(checkpoint_tokenizer(folder() / "tiny_llama"));
  std::unique_ptr<Tokenizer> tags_ = load_tokenizer(folder() / "tags/tokenizer.json");
  Model model_ = load_model(folder() / "tiny_llama", at::kCPU);
};

TEST_F(TaskGolden, HumanEvalHasTheSamePromptsProgramsAndPassRate) {
  try {
    const CodeRunnerOptions defaults;
    const CodeRunner runner(defaults);
  } catch (const ConfigError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto& run = golden()["humaneval"];
  const TaskResult result = expect_same(run, *tags_, options(), shipped_task("humaneval"));
  expect_score(result, "pass@1", run["scores"]["pass@1,create_test"]);
}

TEST_F(TaskGolden, IfevalHasTheSameAnswersAndAllFourScores) {
  const auto& run = golden()["ifeval"];
  EvaluationOptions run_options = options();
  run_options.bos = BosPolicy::kAlways;
  const TaskResult result = expect_same(run, *sentencepiece_, run_options, shipped_task("ifeval"));
  for (const auto& [name, value] : run["scores"].items()) {
    expect_score(result, name.substr(0, name.find(',')), value);
  }
}

TEST_F(TaskGolden, MathHasTheSameShotsAnswersAndExactMatch) {
  for (const auto& [shots, run] : golden()["minerva_math"].items()) {
    EvaluationOptions run_options = options();
    run_options.bos = BosPolicy::kAlways;
    const TaskResult result = expect_same(run, *sentencepiece_, run_options, shipped_task("minerva_math"));
    expect_score(result, "exact_match", run["scores"]["exact_match,none"]);
  }
}

TEST_F(TaskGolden, TriviaQaHasTheSameShotsAnswersAndExactMatch) {
  TaskConfig task = shipped_task("triviaqa");
  task.train_file = "triviaqa/train.jsonl";
  task.validation_file = "triviaqa/validation.jsonl";
  double sum = 0.0;
  for (const auto& run : golden()["triviaqa"]) {
    EvaluationOptions run_options = options();
    run_options.bos = BosPolicy::kAlways;
    const TaskResult result = expect_same(run, *sentencepiece_, run_options, task);
    expect_score(result, "exact_match,remove_whitespace", run["scores"]["exact_match,remove_whitespace"]);
    sum += result.primary_result().budgets[0].value;
  }
  EXPECT_GT(sum, 0.0) << "the golden file should cover right answers";
}

TEST_F(TaskGolden, WikitextHasTheSameSumsAndPerplexities) {
  EvaluationOptions run_options = options();
  run_options.tasks = {shipped_task("wikitext")};
  const EvaluationResults results = evaluate(model_, *tags_, run_options);
  ASSERT_TRUE(results.is_complete()) << results.failures.front().message;
  const auto& theirs = golden()["wikitext"];
  const std::vector<Row> rows = read_rows(logs_.path() / "wikitext.jsonl", 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(rows[i].value()["budgets"]["dense"]["sums"][0].get<double>(), theirs["sums"][i].get<double>(),
                2e-3);
  }
  for (const auto& [name, value] : theirs["scores"].items()) {
    const auto& metrics = results.tasks[0].metrics;
    const auto found = std::ranges::find(metrics, name, &MetricResult::name);
    ASSERT_NE(found, metrics.end()) << name;
    EXPECT_NEAR(found->budgets[0].value / value.get<double>(), 1.0, 1e-5) << name;
  }
}

TEST_F(TaskGolden, ChatTemplatesGiveTheSameIdsSumsAndScoresOfContinuations) {
  for (const auto& run : golden()["chat_likelihood"]) {
    EvaluationOptions chat = chat_options(run);
    const std::string name = run["task"];
    chat.data_folder = source_folder() / "examples/benchmarks";
    chat.tasks = {shipped_task(name)};
    chat.limit = std::ssize(run["rows"]);
    chat.system_prompt = run["system_prompt"];
    const EvaluationResults results = evaluate(model_, *tags_, chat);
    ASSERT_TRUE(results.is_complete()) << results.failures.front().message;
    const std::vector<Row> rows = read_rows(logs_.path() / (name + ".jsonl"), 0);
    ASSERT_EQ(rows.size(), run["rows"].size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto& pairs = run["rows"][i];
      for (size_t j = 0; j < pairs.size(); ++j) {
        const auto& theirs = pairs[j].contains("context_ids") ? pairs[j] : pairs[0];
        const auto& ours = rows[i].value()["token_ids"][j];
        std::vector<int32_t> context = theirs["context_ids"];
        const std::vector<int32_t> cut = ours["context"];
        ASSERT_LE(cut.size(), context.size());
        context.erase(context.begin(), context.end() - std::ssize(cut));
        EXPECT_EQ(cut, context) << name << " row " << i;
        EXPECT_EQ(ours["continuation"], pairs[j]["continuation_ids"]) << name << " row " << i;
        EXPECT_NEAR(rows[i].value()["budgets"]["dense"]["sums"][j].get<double>(),
                    pairs[j]["sum"].get<double>(), 1e-4);
      }
    }
    for (const auto& [metric, value] : run["scores"].items()) {
      const auto& metrics = results.tasks[0].metrics;
      const auto found = std::ranges::find(metrics, metric, &MetricResult::name);
      ASSERT_NE(found, metrics.end()) << metric;
      const double expected = value;
      EXPECT_NEAR(found->budgets[0].value, expected, metric == "perplexity" ? 1e-4 * expected : 0.0) << name;
    }
  }
}

TEST_F(TaskGolden, ChatTemplatesGiveTheSameIdsAndAnswersOfGenerations) {
  for (const auto& run : golden()["chat_generation"]) {
    const TaskResult result = expect_same(run, *tags_, chat_options(run), shipped_task("gsm8k"));
    for (const auto& [name, value] : run["scores"].items()) expect_score(result, name, value);
  }
}

}  // namespace
}  // namespace smoe
