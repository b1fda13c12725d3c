// Generates the answers to the rows of a task at one budget, many at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "smoe/data/chat_renderer.h"
#include "smoe/eval/items.h"
#include "smoe/eval/shared_prefixes.h"
#include "smoe/infer/generation.h"
#include "smoe/infer/prompts.h"
#include "smoe/model/model.h"

namespace smoe {

struct GeneratedAnswer {
  std::string text;  // cut before the earliest stop
  FinishReason finish = FinishReason::kLength;
  int64_t num_tokens = 0;
};

struct AnswerGenerationOptions {
  int64_t segment_length = 32;
  RoutingMode routing = RoutingMode::kSegments;
  BosPolicy bos = BosPolicy::kAuto;
  int64_t max_length = 2048;              // tokens of prompt and answer together
  int64_t batch_tokens = 8192;            // memory and speed only
  std::optional<int64_t> max_new_tokens;  // at most so many, whatever the task says
  uint64_t seed = 1234;                   // of sampled answers
  const ChatRenderer* chat = nullptr;     // prompts become dialogues; not owned
  bool share_prefixes = true;             // compute what many prompts begin with once; changes speed only
};

// The prompts of a task as token ids.
struct AnswerPrompts {
  std::vector<std::vector<int32_t>> ids;  // one a row
  // Earlier answers in the prompt of a dialogue, one list a row: each turn has its own experts, as in
  // training.
  std::vector<std::vector<ResponseSpan>> responses;
  int64_t truncated = 0;                 // prompts that lost ids on the left, to leave room for the answer
  std::vector<int64_t> shared_prefixes;  // first ids that are computed once for all rows that have them
  PrefixCounts prefix_counts;            // over all samples of the rows
};

// The dialogue `before`, continued by one message of the user.
DialoguePrompt dialogue_prompt(const ChatRenderer& chat, const Conversation& before,
                               const std::string& message);

class AnswerGenerator {
 public:
  // `model` and `tokenizer` must outlive the generator.
  AnswerGenerator(const Model& model, const Tokenizer& tokenizer, const AnswerGenerationOptions& options)
      : model_(model), tokenizer_(tokenizer), options_(options) {}

  // Most tokens of an answer. Throws ConfigError if that leaves no room for a prompt.
  int64_t max_new_tokens(const TaskConfig& task) const;
  AnswerPrompts encode(const TaskConfig& task, const std::vector<EvaluationItem>& items) const;

  // One answer to be generated: sample `sample` of row `item`.
  struct Wanted {
    size_t item = 0;
    int64_t sample = 0;
  };
  // Longest prompts first; calls `on_answer` as answers finish. Each answer depends on its prompt, seed and
  // sample number alone, not on what else is wanted (beyond rounding).
  void generate(const TaskConfig& task, const std::vector<EvaluationItem>& items,
                const AnswerPrompts& prompts, std::vector<Wanted> wanted, int64_t budget,
                const std::function<void(const Wanted&, GeneratedAnswer)>& on_answer) const;

 private:
  DialoguePrompt prompt_of(const EvaluationItem& item) const;
  GenerationRequest request(const TaskConfig& task, const EvaluationItem& item, const AnswerPrompts& prompts,
                            const Wanted& wanted, int64_t budget) const;
  void share_prefixes(AnswerPrompts& prompts, int64_t num_samples) const;

  const Model& model_;
  const Tokenizer& tokenizer_;
  AnswerGenerationOptions options_;
};

}  // namespace smoe
