// Agreement with the real lm-evaluation-harness: tests/golden/eval/make_golden.py ran it on the model that
// ships there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eval/eval_test_support.h"
#include "smoe/core/json.h"
#include "smoe/eval/evaluator.h"
#include "smoe/eval/task_library.h"
#include "smoe/model/checkpoint_reader.h"

namespace smoe {
namespace {

class HarnessGolden : public ::testing::Test {
 protected:
  static std::filesystem::path folder() { return source_folder() / "tests/golden/eval"; }
  static const nlohmann::json& golden() {
    static const nlohmann::json value = read_json_file(folder() / "golden.json");
    return value;
  }
  static std::filesystem::path data_folder(const std::string& task) {
    return task == "sciq" ? folder() / "data" : source_folder() / "examples/benchmarks";
  }
  static BosPolicy policy(const nlohmann::json& run) {
    return run["bos"] ? BosPolicy::kAlways : BosPolicy::kNever;
  }

  std::vector<EvaluationItem> items_of(const nlohmann::json& run) const {
    const std::string name = run["task"];
    return build_items(shipped_task(name),
                       {data_folder(name), std::ssize(run["rows"]), run["shots"].get<int64_t>(), 1234});
  }

  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(checkpoint_tokenizer(folder() / "tiny_llama"));
  Model model_ = load_model(folder() / "tiny_llama", at::kCPU);
  int64_t max_length_ = golden()["max_length"];
};

TEST_F(HarnessGolden, PromptsAndContinuationsAreTheSameTexts) {
  for (const auto& run : golden()["runs"]) {
    const auto items = items_of(run);
    ASSERT_EQ(items.size(), run["rows"].size());
    for (size_t i = 0; i < items.size(); ++i) {
      const auto& pairs = run["rows"][i];
      ASSERT_EQ(items[i].pairs.size(), pairs.size());
      for (size_t j = 0; j < pairs.size(); ++j) {
        const auto& context = pairs[j].contains("context") ? pairs[j]["context"] : pairs[0]["context"];
        EXPECT_EQ(items[i].pairs[j].context, context.get<std::string>()) << run["task"] << " row " << i;
        EXPECT_EQ(items[i].pairs[j].continuation, pairs[j]["continuation"].get<std::string>());
      }
    }
  }
}

TEST_F(HarnessGolden, TokenIdsAreTheSame) {
  for (const auto& run : golden()["runs"]) {
    // The harness truncates after this point, so its ids are compared untruncated.
    PairEncoder encoder(*tokenizer_, policy(run), 1'000'000);
    const auto items = items_of(run);
    for (size_t i = 0; i < items.size(); ++i) {
      const auto& pairs = run["rows"][i];
      for (size_t j = 0; j < pairs.size(); ++j) {
        const Request request = encoder.encode(items[i].pairs[j], items[i].where);
        const auto& context =
            pairs[j].contains("context_ids") ? pairs[j]["context_ids"] : pairs[0]["context_ids"];
        EXPECT_EQ(request.context, context.get<std::vector<int32_t>>()) << run["task"] << " row " << i;
        EXPECT_EQ(request.continuation, pairs[j]["continuation_ids"].get<std::vector<int32_t>>());
      }
    }
  }
}

TEST_F(HarnessGolden, SumsAgreeToTheRoundingOfFloat32) {
  int64_t truncated = 0;
  for (const auto& run : golden()["runs"]) {
    PairEncoder encoder(*tokenizer_, policy(run), max_length_);
    std::vector<Request> requests;
    std::vector<double> sums;
    std::vector<bool> greedy;
    const auto items = items_of(run);
    for (size_t i = 0; i < items.size(); ++i) {
      for (size_t j = 0; j < items[i].pairs.size(); ++j) {
        requests.push_back(encoder.encode(items[i].pairs[j], items[i].where));
        requests.back().group = static_cast<int64_t>(i);
        sums.push_back(run["rows"][i][j]["sum"]);
        greedy.push_back(run["rows"][i][j]["greedy"]);
      }
    }
    const auto scores = Scorer(model_, {}).score(requests, 0);
    for (size_t i = 0; i < scores.size(); ++i) {
      // The harness adds up in float32: four units in the last place of the largest sums.
      const double tolerance = std::max(1e-4, 4.8e-7 * std::abs(sums[i]));
      EXPECT_NEAR(scores[i].sum, sums[i], tolerance) << run["task"] << " request " << i;
      EXPECT_EQ(scores[i].is_greedy, greedy[i]);
    }
    truncated += encoder.counts().truncated;
  }
  EXPECT_GT(truncated, 10) << "the golden files should cover truncation";
}

TEST_F(HarnessGolden, ScoresAreTheSame) {
  for (const auto& run : golden()["runs"]) {
    const std::string name = run["task"];
    EvaluationOptions options;
    options.tasks = {shipped_task(name)};
    options.data_folder = data_folder(name);
    options.limit = std::ssize(run["rows"]);
    options.num_shots = run["shots"].get<int64_t>();
    options.bos = policy(run);
    options.max_length = max_length_;
    const TaskResult result = evaluate(model_, *tokenizer_, options).tasks.at(0);
    for (const auto& [metric, value] : run["scores"].items()) {
      const auto found = std::ranges::find(result.metrics, metric, &MetricResult::name);
      ASSERT_NE(found, result.metrics.end()) << name << " " << metric;
      const double expected = value;
      // Accuracies are counts and must be equal; perplexity is the exponential of a sum that agrees to 1e-4.
      const double tolerance = metric == "perplexity" ? 1e-4 * expected : 0.0;
      EXPECT_NEAR(found->budgets[0].value, expected, tolerance) << name << " " << metric;
    }
  }
}

TEST_F(HarnessGolden, RollingWindowsAndTextScoresAreTheSame) {
  const auto& text = golden()["text"];
  EvaluationOptions options;
  options.tasks = {text_task(folder() / "data/text.jsonl")};
  options.max_length = max_length_;
  const TaskResult result = evaluate(model_, *tokenizer_, options).tasks.at(0);
  for (const auto& [metric, value] : text["scores"].items()) {
    const auto found = std::ranges::find(result.metrics, metric, &MetricResult::name);
    ASSERT_NE(found, result.metrics.end()) << metric;
    EXPECT_NEAR(found->budgets[0].value / value.get<double>(), 1.0, 1e-5) << metric;
  }
  PairEncoder encoder(*tokenizer_, BosPolicy::kAuto, max_length_);
  size_t window = 0;
  for (const EvaluationItem& item : build_items(options.tasks[0], {})) {
    double sum = 0.0;
    const auto requests = encoder.encode_rolling(item.pairs[0].continuation);
    for (const RequestScore& score : Scorer(model_, {}).score(requests, 0)) sum += score.sum;
    EXPECT_NEAR(sum, text["sums"][static_cast<size_t>(item.line - 1)].get<double>(), 1e-3) << item.where;
    for (const Request& request : requests) {
      EXPECT_EQ(request.context, text["windows"][window][0].get<std::vector<int32_t>>());
      EXPECT_EQ(request.continuation, text["windows"][window][1].get<std::vector<int32_t>>());
      ++window;
    }
  }
  EXPECT_EQ(window, text["windows"].size());
}

}  // namespace
}  // namespace smoe
