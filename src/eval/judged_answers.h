// Answers that a judge will read, in the files of the benchmarks' own projects.
#pragma once

#include <string>
#include <vector>

#include "eval/prepared_task.h"

namespace smoe {

// Writes FOLDER/TASK/BUDGET.json (AlpacaEval) or .jsonl (Arena-Hard), one file a budget, and returns their
// paths. The model is called NAME-BUDGET there.
std::vector<std::string> write_judged_answers(const PreparedTask& task,
                                              const std::vector<BudgetScores>& scores,
                                              const std::vector<std::string>& budget_names,
                                              const EvaluationOptions& options);

// The command that judges the first of these files, for the reader of the results.
std::string judge_command(const TaskConfig& task, const std::vector<std::string>& files,
                          const EvaluationOptions& options);

}  // namespace smoe
