// The per-sample log: one JSON line a row with its texts, and the sums at every budget.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "smoe/eval/items.h"
#include "smoe/eval/metrics.h"

namespace smoe {

class SampleLog {
 public:
  // `path`: a .jsonl file for all tasks, or a folder that gets one file a task. Empty: nothing is written.
  // Makes the folder, and throws Error if no file can be written there.
  explicit SampleLog(std::filesystem::path path);

  // Adds one line. `score_of_budget[i]` belongs to `budget_names[i]`. `token_ids` is left out if null.
  void add(const TaskConfig& task, const EvaluationItem& item, const std::vector<std::string>& budget_names,
           const std::vector<ItemScore>& score_of_budget, const nlohmann::ordered_json& token_ids);

  // Writes what was added since the last call; the folder or file is complete for the tasks done so far.
  void finish_task(const TaskConfig& task);

 private:
  std::filesystem::path path_;
  std::string lines_;
};

}  // namespace smoe
