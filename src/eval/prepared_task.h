// A task whose rows have been read and encoded, and how it is scored at one budget.
#pragma once

#include <memory>
#include <vector>

#include "eval/task_journal.h"
#include "smoe/core/progress.h"
#include "smoe/eval/evaluator.h"
#include "smoe/eval/response_scores.h"
#include "smoe/eval/scorer.h"

namespace smoe {

struct PreparedTask {
  const TaskConfig* config = nullptr;
  std::vector<EvaluationItem> items;
  // Kinds that score continuations.
  std::vector<Request> requests;
  std::vector<std::pair<size_t, size_t>> owner_of_request;  // (item, choice)
  // Kinds that generate.
  AnswerPrompts prompts;
  std::unique_ptr<ResponseScorer> responses;
  TaskResult result;

  bool generates() const { return responses != nullptr; }
};

// What all tasks of a run share. References must outlive it.
struct TaskTools {
  const Tokenizer& tokenizer;
  const EvaluationOptions& options;
  Scorer& scorer;
  const AnswerGenerator& generator;
  const CodeRunner* runner = nullptr;  // null: no task runs code
  int64_t prefix_unit = 0;             // shared prefixes are multiples of it; 0: none are shared
  const ChatRenderer* chat = nullptr;  // null: prompts are plain text
};

// Reads, encodes and checks. Throws as these do.
PreparedTask prepare_task(const TaskConfig& task, const TaskTools& tools);

// Pieces of work that prepared tasks report to a progress bar, for one budget.
int64_t num_work_items(const PreparedTask& task);

// Scores a task at one budget, except for what the journal already holds; counts go into `task.result`.
BudgetScores score_task(PreparedTask& task, const TaskTools& tools, int64_t budget, TaskJournal& journal,
                        ProgressBar& progress);

}  // namespace smoe
