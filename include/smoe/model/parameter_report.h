// The counts of a config as text for people and as JSON for programs: the work of smoe-params.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/model/model_config.h"
#include "smoe/model/parameter_counts.h"

namespace smoe {

struct ParameterReportOptions {
  std::string title;               // first line of the text, usually the config's path
  int64_t sequence_length = 4096;  // tokens; for the attention part of the FLOPs
  std::vector<double> targets;     // active sizes to solve for
  CountingRule counting = CountingRule::kNonEmbedding;
  int64_t world_size = 1;     // processes of a shard group; above 1 the memory of each is reported
  double train_tokens = 0.0;  // above 0: what training on so many tokens costs at every budget
};

// Tables of components, budgets, memory and solved sizes. Throws ConfigError for a target out of reach.
std::string parameter_report_text(const ModelConfig& config, const ParameterReportOptions& options);

// The same as one JSON object with exact numbers. Same errors.
std::string parameter_report_json(const ModelConfig& config, const ParameterReportOptions& options);

// Bytes of weights, gradients and two moments that training in float32 keeps for a parameter; in bfloat16
// there are masters, too, and gradients are float32.
int64_t float32_training_bytes();
int64_t bfloat16_training_bytes();

// What one process keeps of the training state, in bytes.
struct ProcessState {
  double weights = 0.0;
  double gradients = 0.0;
  double optimizer = 0.0;

  double sum() const { return weights + gradients + optimizer; }
};

// With distributed.zero_stage `zero_stage` in a shard group of `num_shards` processes; in float32, or in
// bfloat16 with float32 masters.
ProcessState process_state(const ModelConfig& config, bool is_bfloat16, int64_t zero_stage,
                           int64_t num_shards);

// "3B", "2.5b", "700M", "12k", "3e9": a positive count. Throws ConfigError for anything else.
double parse_count(std::string_view text);

}  // namespace smoe
