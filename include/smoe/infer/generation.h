// What a generation is asked for and what it gives back: plain structs that the session, the tools and the
// evaluation share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "smoe/infer/sampler.h"
#include "smoe/routing/chat_segments.h"
#include "smoe/routing/routing_mode.h"

namespace smoe {

enum class FinishReason {
  kStop,       // a stop string appeared
  kEos,        // a stop id was chosen
  kLength,     // max_new_tokens or the context limit was reached
  kCancelled,  // by the callback or by cancel()
  kFailed,     // an expert that it needs could not be read
};
// "stop", "eos", "length", "cancelled" or "failed".
std::string finish_reason_name(FinishReason reason);

// What a streaming caller learns. Every request that is not cancelled ends with exactly one event whose
// `finish` is set.
struct TokenEvent {
  int64_t request = 0;
  std::optional<int32_t> token;   // none where only held-back text is delivered (a stop id is no token)
  std::string text;               // new text, complete in UTF-8; may be empty
  std::optional<double> logprob;  // of `token`, if asked for
  std::optional<FinishReason> finish;
  std::string error;  // with kFailed: what went wrong
};

struct GenerationRequest {
  std::vector<int32_t> prompt;  // not empty; BOS and templates are the caller's
  // Earlier answers inside the prompt of a dialogue, in order: with routing kLastPromptToken each turn has
  // the experts that its own last prompt token chooses, as in training.
  std::vector<ResponseSpan> responses;
  // First tokens of the prompt that other requests have too: computed once for all of them. A multiple of
  // shareable_prefix_unit() and less than the whole prompt; 0: nothing is shared.
  int64_t shared_prefix = 0;
  int64_t budget = 0;           // index into the model's budgets; ignored by dense models
  int64_t segment_length = 32;  // S: tokens between two choices of experts; ignored unless stepped_moe
  RoutingMode routing = RoutingMode::kSegments;
  int64_t max_new_tokens = 256;
  SamplingConfig sampling;
  std::vector<std::string> stops;        // the text ends before the earliest of them
  std::vector<int32_t> stop_ids;         // usually EOS; neither part of ids nor of text
  std::string ending;                    // left out where the text ends with it before a stop id
  std::optional<int64_t> context_limit;  // most tokens of prompt and answer together
  bool with_logprobs = false;            // natural-log probabilities of the chosen tokens
  bool continues_text = false;           // the text keeps the space by which it follows the prompt
  // Called from step(); false cancels the request. It may add and cancel requests.
  std::function<bool(const TokenEvent&)> on_token;
};

// Times are wall-clock seconds. Of one request: the whole time of the forwards it took part in, whoever else
// was in them. Of a session: each forward once.
struct GenerationStats {
  double queue_s = 0.0;  // from add() to the first forward (of a session: the sum)
  double prefill_s = 0.0;
  double decode_s = 0.0;
  int64_t prompt_tokens = 0;
  int64_t new_tokens = 0;
  int64_t decode_tokens = 0;     // new tokens but each request's first, which the prefill gives
  int64_t refreshes = 0;         // new choices of experts while decoding
  int64_t selected_experts = 0;  // experts of these choices, over all layers
  int64_t kept_experts = 0;      // those of them that the choice before had too

  double prefill_tokens_per_s() const;
  double decode_tokens_per_s() const;
  // Share of experts that a refresh need not fetch (the cache hit rate); 0 without refreshes.
  double kept_share() const;
};

struct GenerationResult {
  int64_t request = 0;           // as add() returned it
  std::vector<int32_t> ids;      // the chosen tokens, those of a stop string included
  std::vector<double> logprobs;  // one an id, if asked for
  std::string text;              // the text of `ids`, cut at the stop string
  FinishReason finish = FinishReason::kLength;
  std::string error;                // with kFailed: what went wrong
  std::optional<std::string> stop;  // the stop string that ended it
  std::optional<int32_t> stop_id;   // the stop id that ended it
  GenerationStats stats;
};

}  // namespace smoe
