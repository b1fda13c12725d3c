// Runs tasks on a model at several budgets, with identical prompts at each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "smoe/data/chat_template.h"
#include "smoe/data/tokenizer.h"
#include "smoe/eval/code_runner.h"
#include "smoe/eval/request_batch.h"
#include "smoe/eval/results.h"
#include "smoe/eval/task_config.h"

namespace smoe {

// The release of lm-evaluation-harness whose prompts, tokenisation and scores are followed: the golden files
// were made with it.
inline constexpr const char* kHarnessVersion = "0.4.13";

struct EvaluationOptions {
  std::vector<TaskConfig> tasks;
  std::vector<TaskGroupConfig> groups;
  std::vector<TaskFailure> failures;  // what was asked for and cannot be scored, for the results
  std::filesystem::path data_folder;
  std::vector<int64_t> budgets;           // indices into the model's budgets; empty: all
  std::optional<int64_t> segment_length;  // default: the one of training
  RoutingMode routing = RoutingMode::kSegments;
  BosPolicy bos = BosPolicy::kAuto;
  std::optional<int64_t> num_shots;  // default: each task's own
  uint64_t seed = 1234;
  int64_t limit = 0;
  int64_t max_length = 2048;
  int64_t batch_tokens = 8192;
  bool share_prefixes = true;                 // compute what many prompts begin with once; changes speed only
  std::filesystem::path samples;              // folder, or one .jsonl file; empty: no sample log
  bool log_token_ids = false;                 // in the sample log
  std::optional<int64_t> max_new_tokens;      // at most so many for an answer, whatever the task says
  std::optional<ChatTemplate> chat_template;  // prompts become dialogues
  PromptLayout chat_layout = PromptLayout::kTurns;  // of shots in these dialogues
  std::string system_prompt;                        // before the description, in these dialogues
  std::filesystem::path answers;                    // folder for answers that are judged elsewhere
  std::string model_name;                           // in those answers, with the budget's name behind it
  CodeRunnerOptions code;                           // how generated programs are run
  std::filesystem::path journal;                    // folder of unfinished work, continued; empty: none
  std::string checkpoint;                           // for the results
  std::string checkpoint_hash;                      // for the results, and to know the journal's run again
};

// Scores every task. Reads all data files and checks them before the first forward pass. A task that fails is
// named in the results with the reason, and the others go on. The journal stays: whoever keeps the results
// removes it once they are on disk.
EvaluationResults evaluate(const Model& model, const Tokenizer& tokenizer, const EvaluationOptions& options);

// Indices of the budgets in a list such as "all", "1B,3B" or "5,43". Throws ConfigError that lists the
// budgets.
std::vector<int64_t> parse_budgets(const ModelConfig& config, const std::string& text);

}  // namespace smoe
