// Generation for a list of requests, all at once.
#pragma once

#include <vector>

#include "smoe/infer/generation_session.h"

namespace smoe {

class Generator {
 public:
  // `model` and `tokenizer` must outlive the generator.
  Generator(const Model& model, const Tokenizer& tokenizer, const SessionLimits& limits = {})
      : model_(model), tokenizer_(tokenizer), limits_(limits) {}

  // Results in the order of `requests`. Throws as GenerationSession::add does, before any work.
  std::vector<GenerationResult> generate(std::vector<GenerationRequest> requests);
  GenerationResult generate(GenerationRequest request);

  // Of all calls so far.
  const GenerationStats& stats() const { return stats_; }

 private:
  const Model& model_;
  const Tokenizer& tokenizer_;
  SessionLimits limits_;
  GenerationStats stats_;
};

// The ids that end an answer by default: EOS, if the tokenizer defines it.
std::vector<int32_t> default_stop_ids(const Tokenizer& tokenizer);

}  // namespace smoe
