// What an evaluation found, and everything needed to repeat it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "smoe/eval/metrics.h"
#include "smoe/eval/pair_encoding.h"
#include "smoe/eval/shared_prefixes.h"

namespace smoe {

struct MetricResult {
  std::string name;
  bool is_share = true;  // a share of rows: shown in percent
  bool exponential = false;
  std::vector<Estimate> budgets;      // one a budget
  std::vector<Estimate> differences;  // budget i+1 minus budget i, paired
};

// Of all budgets together.
struct GenerationCounts {
  int64_t max_new_tokens = 0;  // after the limit of the command line
  int64_t answers = 0;
  int64_t new_tokens = 0;
  int64_t ended_by_length = 0;
  int64_t programs = 0;
  int64_t timed_out_programs = 0;
  int64_t samples = 1;  // answers to a row
  double temperature = 0.0;
  double top_p = 1.0;
  uint64_t seed = 0;  // of sampled answers
};

// The primary metric over a part of the rows.
struct SubgroupResult {
  std::string name;
  int64_t num_rows = 0;
  MetricResult metric;
};

struct TaskResult {
  std::string name;
  std::string title;
  TaskKind kind = TaskKind::kMultipleChoice;
  std::string data_file;
  std::string data_hash;  // SHA-256 of the data file
  std::string task_hash;  // SHA-256 of the resolved task config
  int64_t num_rows = 0;
  int64_t num_shots = 0;
  EncodingCounts counts;
  std::string primary;
  std::vector<MetricResult> metrics;
  std::vector<SubgroupResult> subgroups;
  std::vector<std::string> answer_files;  // of kinds that are judged elsewhere: one a budget
  double seconds = 0.0;
  PrefixCounts shared_prefixes;
  std::optional<GenerationCounts> generation;  // of kinds that generate
  std::string sample_log;                      // where the rows are; empty: not logged

  const MetricResult& primary_result() const;
};

// A task that could not be scored, and why.
struct TaskFailure {
  std::string name;
  std::string message;
};

struct GroupResult {
  std::string name;
  std::string title;
  std::vector<std::string> tasks;
  MetricResult mean;  // of the primary metrics
};

// Facts of the run that are not scores.
struct EvaluationContext {
  std::string checkpoint;
  std::string checkpoint_hash;
  std::string tokenizer_hash;
  std::string code_version;
  std::string harness_version;
  std::string dtype;
  std::string device;
  std::string bos_policy;
  std::string added_token;  // spelling of the token before every text; empty: none
  std::string routing;
  int64_t segment_length = 0;
  int64_t max_length = 0;
  int64_t batch_tokens = 0;
  std::string shared_prefixes;  // "on", "off" (by option) or "impossible" (with this routing)
  int64_t num_threads = 0;
  int64_t limit = 0;
  uint64_t seed = 0;
  std::string chat_template;  // name; empty: prompts are plain text
  std::string chat_layout;    // of shots in dialogues; empty without a chat template
  std::string system_prompt;
  std::string sandbox;  // how generated programs were run; empty: none was
};

struct EvaluationResults {
  EvaluationContext context;
  std::vector<std::string> budget_names;
  std::vector<int64_t> experts_per_layer;  // k of each budget; empty for a dense model
  std::vector<TaskResult> tasks;
  std::vector<GroupResult> groups;
  std::vector<TaskFailure> failures;
  std::vector<std::string> notes;  // of the groups: what belongs to them and is run by other commands

  bool is_complete() const { return failures.empty(); }
};

// The results file. Metric values are full-precision numbers; accuracies lie in [0, 1].
nlohmann::ordered_json to_json(const EvaluationResults& results);

// Task x budget tables: accuracies in percent, "value +-standard error", then the paired differences of
// neighbours.
std::string to_terminal_table(const EvaluationResults& results);
std::string to_markdown(const EvaluationResults& results);

}  // namespace smoe
