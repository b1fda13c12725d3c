// What an evaluation found, and everything needed to repeat it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "smoe/eval/metrics.h"
#include "smoe/eval/pair_encoding.h"

namespace smoe {

struct MetricResult {
  Metric metric = Metric::kAccuracy;
  std::vector<Estimate> budgets;      // one a budget
  std::vector<Estimate> differences;  // budget i+1 minus budget i, paired
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
  Metric primary = Metric::kAccuracy;
  std::vector<MetricResult> metrics;
  double seconds = 0.0;

  const MetricResult& primary_result() const;
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
  std::string harness_commit;
  std::string dtype;
  std::string device;
  std::string bos_policy;
  std::string added_token;  // spelling of the token before every text; empty: none
  std::string routing;
  int64_t segment_length = 0;
  int64_t max_length = 0;
  int64_t batch_tokens = 0;
  int64_t num_threads = 0;
  int64_t limit = 0;
  uint64_t seed = 0;
};

struct EvaluationResults {
  EvaluationContext context;
  std::vector<std::string> budget_names;
  std::vector<int64_t> experts_per_layer;  // k of each budget; empty for a dense model
  std::vector<TaskResult> tasks;
  std::vector<GroupResult> groups;
};

// The results file. Metric values are full-precision numbers; accuracies lie in [0, 1].
nlohmann::ordered_json to_json(const EvaluationResults& results);

// Task x budget tables: accuracies in percent, "value +-standard error", then the paired differences of
// neighbours.
std::string to_terminal_table(const EvaluationResults& results);
std::string to_markdown(const EvaluationResults& results);

}  // namespace smoe
