// From text pairs to token ids, by the rules of lm-evaluation-harness.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smoe/data/bos_policy.h"
#include "smoe/data/tokenizer.h"
#include "smoe/eval/items.h"
#include "smoe/infer/prompts.h"

namespace smoe {

// `continuation` is scored given `context`, which is never empty.
struct Request {
  std::vector<int32_t> context;
  std::vector<int32_t> continuation;
  int64_t group = 0;  // requests of one group that have the same context share its computation
  // First ids of the context that are computed once for all requests that begin with them; at least one id of
  // the context is left. What may be shared is the planner's business (shared_prefixes.h).
  int64_t shared_prefix = 0;
  // Earlier answers in the context of a dialogue: with routing last_prompt_token each turn has its own
  // experts.
  std::vector<ResponseSpan> responses = {};
};

struct EncodingCounts {
  int64_t requests = 0;
  int64_t truncated = 0;            // contexts that lost ids on the left
  int64_t empty_continuations = 0;  // a token spanned the border: the continuation was encoded by itself
};

// Drops the first `count` ids. An earlier answer that loses its beginning, or the token before it, becomes a
// part of the prompt after it.
void drop_left(int64_t count, std::vector<int32_t>& ids, std::vector<ResponseSpan>& responses);

class PairEncoder {
 public:
  // `max_length`: most tokens a forward pass may see. Throws ConfigError if the policy needs a token that the
  // tokenizer lacks.
  PairEncoder(const Tokenizer& tokenizer, BosPolicy policy, int64_t max_length);

  // Throws DataError (beginning with `where`) if the continuation alone exceeds max_length.
  Request encode(const TextPair& pair, const std::string& where);
  // The same for an answer in a dialogue: `prompt` ends where the chat template lets an answer begin, and the
  // answer is encoded by itself, as in training.
  Request encode_answer(DialoguePrompt prompt, std::string_view answer, const std::string& where);
  // Windows over a whole text: the first after one prefix token, each later one given the one token before
  // it; the last, short one sees as much earlier text as fits. Every token is scored once.
  std::vector<Request> encode_rolling(const std::string& text);

  // The token before every text, if any.
  std::optional<int32_t> added_token() const { return added_token_; }
  const EncodingCounts& counts() const { return counts_; }

 private:
  std::vector<int32_t> encode_text(std::string_view text) const;
  int32_t prefix_token() const;
  void finish(Request& request, std::string_view continuation, const std::string& where);
  void truncate(Request& request, const std::string& where);

  const Tokenizer& tokenizer_;
  std::optional<int32_t> added_token_;
  int64_t max_length_;
  EncodingCounts counts_;
};

}  // namespace smoe
