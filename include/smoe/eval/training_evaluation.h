// Evaluation of a model that is being trained: the same tasks again and again, as named numbers.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "smoe/eval/evaluator.h"

namespace smoe {

class TrainingEvaluation {
 public:
  // Reads tokenizer and data, and checks them; throws ConfigError or DataError for what is not there or does
  // not fit. Results go into `folder`, one file a step.
  TrainingEvaluation(EvaluationOptions options, const std::filesystem::path& tokenizer,
                     std::filesystem::path folder);

  // "TASK/METRIC/BUDGET" for every task, "GROUP/mean/BUDGET" for every group, the percentages of tables as
  // shares. Tasks that fail are logged and left out: training goes on.
  std::map<std::string, double> run(const Model& model, int64_t step) const;

  // One line a task with its number of rows.
  std::string describe() const;

 private:
  EvaluationOptions options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::filesystem::path folder_;
  std::map<std::string, int64_t> rows_of_task_;
};

}  // namespace smoe
