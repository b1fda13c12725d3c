#include "smoe/eval/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/json.h"
#include "smoe/eval/evaluator.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Comparisons : public ::testing::Test {
 protected:
  // Evaluates a model and writes what smoe-eval writes.
  EvaluationResults run(const std::string& name, const Model& model, int64_t segment_length,
                        bool with_samples, std::vector<int64_t> budgets = {}) {
    EvaluationOptions options;
    options.tasks = {shipped_task("arc_easy"), shipped_task("lambada_openai")};
    options.data_folder = source_folder() / "examples/benchmarks";
    options.limit = 8;
    options.segment_length = segment_length;
    options.budgets = std::move(budgets);
    if (with_samples) options.samples = folder_.path() / name;
    EvaluationResults results = evaluate(model, tokenizer_, options);
    write_json_atomically(file(name), to_json(results));
    return results;
  }
  std::filesystem::path file(const std::string& name) const { return folder_.path() / (name + ".json"); }

  TemporaryFolder folder_;
  ByteTokenizer tokenizer_;
  Model model_ = make_model(tiny_stepped_config());
};

TEST_F(Comparisons, ARunDiffersFromItselfByNothing) {
  run("a", model_, 4, true);
  const Comparison comparison = compare_evaluations(file("a"), file("a"), {});
  EXPECT_TRUE(comparison.warnings.empty());
  for (const ComparedMetric& metric : comparison.metrics) {
    EXPECT_EQ(metric.num_rows, 8);
    EXPECT_EQ(metric.difference.value, 0.0);
    EXPECT_EQ(metric.difference.standard_error, 0.0);
  }
}

TEST_F(Comparisons, TwoBudgetsOfARunDifferAsInItsOwnReport) {
  const EvaluationResults results = run("a", model_, 4, true);
  const Comparison comparison = compare_evaluations(file("a"), file("a"), {"small", "medium"});
  for (const ComparedMetric& metric : comparison.metrics) {
    const TaskResult& task = *std::ranges::find(results.tasks, metric.task, &TaskResult::name);
    const MetricResult& expected = *std::ranges::find(task.metrics, metric.metric, &MetricResult::name);
    EXPECT_EQ(metric.a.value, expected.budgets[0].value) << metric.metric;
    EXPECT_EQ(metric.b.value, expected.budgets[1].value) << metric.metric;
    EXPECT_EQ(metric.difference.standard_error, expected.differences[0].standard_error) << metric.metric;
  }
  EXPECT_EQ(comparison.metrics.size(), 6u);
}

TEST_F(Comparisons, DifferencesOfTheSettingsAreNamed) {
  run("a", model_, 4, true);
  run("b", model_, 8, true, {1});
  const Comparison comparison = compare_evaluations(file("a"), file("b"), {});
  EXPECT_EQ(comparison.metrics.size(), 18u) << "the one budget of b is compared with all three of a";
  EXPECT_THAT(to_terminal_table(comparison), AllOf(HasSubstr("segment_length differs: 4 and 8"),
                                                   HasSubstr("small / medium"), HasSubstr("arc_easy")));
}

TEST_F(Comparisons, LogsAreFoundBesideResultsThatWereMoved) {
  run("a", model_, 4, true);
  const TemporaryFolder elsewhere;
  std::filesystem::rename(folder_.path() / "a", elsewhere.path() / "a");
  std::filesystem::rename(file("a"), elsewhere.path() / "a.json");
  EXPECT_NO_THROW(compare_evaluations(elsewhere.path() / "a.json", elsewhere.path() / "a.json", {}));
}

TEST_F(Comparisons, WhatCannotBeComparedIsRefusedWithTheRemedy) {
  run("a", model_, 4, false);
  EXPECT_THAT(error_text<DataError>([&] { compare_evaluations(file("a"), file("a"), {}); }),
              AllOf(HasSubstr("arc_easy"), HasSubstr("--samples")));
  EXPECT_THAT(error_text<DataError>([&] {
                compare_evaluations(file("a"), file("a"), {"huge", {}});
              }),
              AllOf(HasSubstr("huge"), HasSubstr("medium")));
  write_text(folder_.path() / "other.json", "[1]");
  EXPECT_THAT(
      error_text<DataError>([&] { compare_evaluations(folder_.path() / "other.json", file("a"), {}); }),
      HasSubstr("other.json"));
}

TEST_F(Comparisons, ResultsThatWereEditedAreNamed) {
  run("a", model_, 4, true);
  const nlohmann::json results = read_json_file(file("a"));
  for (const char* key : {"/budgets/0/name", "/tasks/arc_easy/metrics", "/tasks/arc_easy/data_sha256",
                          "/tasks/arc_easy/metrics/acc/exponential"}) {
    nlohmann::json edited = results;
    const nlohmann::json::json_pointer place(key);
    edited[place.parent_pointer()].erase(place.back());
    write_json_atomically(file("edited"), edited);
    EXPECT_THAT(error_text<DataError>([&] { compare_evaluations(file("edited"), file("a"), {}); }),
                AllOf(HasSubstr("edited.json"), HasSubstr("not as smoe-eval writes it")))
        << key;
  }
}

}  // namespace
}  // namespace smoe
