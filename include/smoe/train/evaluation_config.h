// Which benchmarks a run is evaluated on while it trains. The tool that trains plugs the evaluation in:
// training itself knows no benchmarks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smoe/core/config.h"

namespace smoe {

struct EvaluationConfig {
  std::vector<std::string> tasks;
  std::optional<int64_t> every_steps;
  std::string data = ".";
  std::string task_folder;
  int64_t limit = 100;
  std::vector<std::string> budgets;
  std::optional<int64_t> num_fewshot;
  std::optional<int64_t> max_new_tokens;
  std::string bos = "eos";
  int64_t batch_tokens = 8192;
};
template <class Visitor>
void visit_fields(Visitor& visitor, EvaluationConfig& config) {
  visitor.field("tasks", config.tasks, "names of tasks and groups, and text:FILE.jsonl; none: no evaluation");
  visitor.field("every_steps", config.every_steps,
                "steps between evaluations; 0: only at the end; auto: with every validation", at_least(0));
  visitor.field("data", config.data, "folder with one folder a benchmark");
  visitor.field("task_folder", config.task_folder,
                "folder with tasks/*.yaml and groups/*.yaml; empty: shipped");
  visitor.field("limit", config.limit, "first rows of each task; 0: all", at_least(0));
  visitor.field("budgets", config.budgets, "names or k of budgets; none: all");
  visitor.field("num_fewshot", config.num_fewshot, "solved rows before each question; auto: each task's own",
                at_least(0));
  visitor.field("max_new_tokens", config.max_new_tokens,
                "most tokens of a generated answer; auto: each task's own", at_least(1));
  visitor.field(
      "bos", config.bos,
      "token before each text: eos (documents of a token store end with it), auto, always or never");
  visitor.field("batch_tokens", config.batch_tokens, "tokens of a batch; changes memory and speed only",
                at_least(1));
}

}  // namespace smoe
