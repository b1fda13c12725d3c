// From generated answers to scores: answers are read and compared, programs run, instructions checked.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "smoe/eval/answer_generation.h"
#include "smoe/eval/code_runner.h"
#include "smoe/eval/metrics.h"

namespace smoe {

// What came out at one budget.
struct BudgetScores {
  std::vector<MetricSeries> series;             // one a metric, in the order of metric_names()
  std::vector<nlohmann::ordered_json> samples;  // one a row, for the log
  int64_t programs = 0;
  int64_t timed_out_programs = 0;
};

// The samples of a row, side by side.
using RowAnswers = std::vector<GeneratedAnswer>;

class ResponseScorer {
 public:
  // `task` must outlive the scorer. `runner` is needed by the kind code only, and must outlive it too.
  ResponseScorer(const TaskConfig& task, const CodeRunner* runner);

  // What must hold before anything is generated: MATH solutions have answers, rows of IFEval and of tool use
  // are complete, the tools of the language are here. Throws DataError or ConfigError.
  void check(const std::vector<EvaluationItem>& items) const;

  // Programs are counted by pass@k; for the other kinds a row's score is the mean over its samples.
  BudgetScores score(const std::vector<EvaluationItem>& items, const std::vector<RowAnswers>& answers) const;

 private:
  // One text a row.
  using Texts = std::vector<std::string>;
  BudgetScores score_samples(const std::vector<EvaluationItem>& items,
                             const std::vector<RowAnswers>& answers) const;
  BudgetScores score_texts(const std::vector<EvaluationItem>& items, const Texts& texts) const;
  BudgetScores score_answers(const std::vector<EvaluationItem>& items, const Texts& texts) const;
  BudgetScores score_programs(const std::vector<EvaluationItem>& items,
                              const std::vector<RowAnswers>& answers) const;
  BudgetScores score_instructions(const std::vector<EvaluationItem>& items, const Texts& texts) const;
  BudgetScores score_tool_calls(const std::vector<EvaluationItem>& items, const Texts& texts) const;
  BudgetScores measure_answers(const std::vector<EvaluationItem>& items, const Texts& texts) const;
  Program program(const EvaluationItem& item, const std::string& completion) const;

  const TaskConfig& task_;
  const CodeRunner* runner_;
  ExactMatch exact_match_;
};

}  // namespace smoe
