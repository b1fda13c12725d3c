// The per-sample log: one JSON line a row with its texts, and what came out at every budget.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "smoe/eval/items.h"
#include "smoe/eval/metrics.h"

namespace smoe {

// The name of a task's file in a folder of logs.
std::string sample_file_name(const std::string& task);

// Sums and verdicts of one row whose continuations were scored.
nlohmann::ordered_json likelihood_sample(const TaskConfig& task, const EvaluationItem& item,
                                         const ItemScore& score);

class SampleLog {
 public:
  // `path`: a .jsonl file for all tasks, or a folder that gets one file a task. Empty: nothing is written.
  // Makes the folder, and throws Error if no file can be written there.
  explicit SampleLog(std::filesystem::path path);

  // Adds one line. `of_budget[i]` belongs to `budget_names[i]`. `token_ids` is left out if null.
  void add(const TaskConfig& task, const EvaluationItem& item, const std::vector<std::string>& budget_names,
           const std::vector<nlohmann::ordered_json>& of_budget, const nlohmann::ordered_json& token_ids);

  // Writes what was added since the last call; the folder or file is complete for the tasks done so far.
  void finish_task(const TaskConfig& task);

  // The absolute path of the file that holds a task; empty if there is none.
  std::string file_of(const std::string& task) const;

 private:
  std::filesystem::path path_;
  std::string lines_;
};

}  // namespace smoe
