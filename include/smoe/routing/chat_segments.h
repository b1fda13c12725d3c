// Routing segments of dialogues (paper 2.4.3 and 3.3): the last prompt token chooses the experts of the
// prompt and of the first S response tokens; after these every S-th response token chooses for the S that it
// begins.
//
// A prompt token is every token before a response and after the response before it: the user's turn, system
// text and whatever the chat template puts around them, up to and including what opens the answer. A response
// is what the model is trained to say, with what ends it. Each response of a dialogue is routed alike.
#pragma once

#include <cstdint>
#include <vector>

#include "smoe/routing/segment_map.h"

namespace smoe {

// The tokens [begin, end) of a row that are one response.
struct ResponseSpan {
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const ResponseSpan&, const ResponseSpan&) = default;
};

// One dialogue in a row: tokens [begin, end). Its responses are in order, and at least one prompt token
// stands before each. The last one may be empty (begin = end = the dialogue's end): its only token is a
// target, not an input.
struct ChatSpan {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<ResponseSpan> responses;

  friend bool operator==(const ChatSpan&, const ChatSpan&) = default;
};

// The dialogues of one row, back to back from token 0; what follows them is padding.
using ChatRow = std::vector<ChatSpan>;

// The segments of `rows` of `num_tokens` tokens each. No segment reaches from one dialogue or turn into the
// next. Tokens after the last response of a dialogue are runs of S from there. Padding shares the experts of
// the last segment before it, so that it costs no choice of its own.
// Throws std::logic_error for dialogues that do not fit the description above.
// `position` says which token chooses for the runs after the first S response tokens.
SegmentMap chat_segments(const std::vector<ChatRow>& rows, int64_t num_tokens, int64_t segment_length,
                         SelectorPosition position = SelectorPosition::kFirst);

}  // namespace smoe
