// The measurement behind smoe-bench eval: scoring the rows of benchmarks as the evaluator does, beside a
// plain script that runs one padded row a request and the whole output head, on the same weights. Weights are
// random: speed depends on sizes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "smoe/bench/speed_report.h"
#include "smoe/eval/task_config.h"
#include "smoe/model/model_config.h"

namespace smoe {

struct EvaluationBenchOptions {
  ModelConfig model;                // a stepped_moe
  std::filesystem::path tokenizer;  // with no more tokens than the model's vocabulary
  std::vector<TaskConfig> tasks;    // of kinds that score continuations
  std::filesystem::path data_folder;
  std::optional<int64_t> num_shots;  // default: each task's own
  int64_t limit = 50;                // first rows of each task
  int64_t max_length = 1024;
  int64_t batch_tokens = 8192;  // of the evaluator
  int64_t naive_rows = 32;      // a batch of the plain script
  int64_t repetitions = 3;
  uint64_t seed = 1;
};

struct EvaluationBenchReport {
  SpeedReport speed;  // labels k and task
  // By contestant: the largest difference of one of its sums of log-probabilities to that of the evaluator.
  std::map<std::string, double> largest_difference;
};

// Contestants are "smoe", "naive" (the library's model in padded batches) and "naive grouped-mm" (the
// strongest composition of LibTorch's operators in these). Throws ConfigError for a model, tokenizer or task
// that does not fit, and as the evaluator does.
EvaluationBenchReport run_evaluation_bench(const EvaluationBenchOptions& options);

// Rows a second, and for each contestant the geometric mean of its times of smoe.
std::string evaluation_bench_table(const EvaluationBenchReport& report);

}  // namespace smoe
