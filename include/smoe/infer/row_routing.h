// Which tokens of a row share one choice of experts while the row grows: the segments of one forward, whether
// it brings a whole prompt, a piece of it or one new token.
#pragma once

#include <cstdint>
#include <vector>

#include "smoe/routing/chat_segments.h"
#include "smoe/routing/routing_mode.h"
#include "smoe/routing/segment_map.h"

namespace smoe {

struct RowRouting {
  // Tokens [begin, end) of the row that share a choice, and the token that makes it.
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t selector = 0;
    int64_t selector_tokens = 1;
  };

  RoutingMode mode = RoutingMode::kSegments;
  int64_t segment_length = 32;
  int64_t prompt_tokens = 0;
  // Earlier answers of a dialogue, in order, inside the prompt (kLastPromptToken). Each turn is routed by its
  // own last prompt token, as chat_segments() does in training.
  std::vector<ResponseSpan> responses = {};
  SelectorPosition selector_position = SelectorPosition::kFirst;

  Run run_at(int64_t position) const;
  // True if the token at `position` is the first of its run.
  bool begins_run(int64_t position) const { return run_at(position).begin == position; }
  // Where a piece of the prompt that begins at `position` may end: after at most `most_tokens`, but not
  // between the beginning of a run and its selector; after more tokens where there is no such place.
  int64_t piece_end(int64_t position, int64_t most_tokens) const;
};

// Appends the segments of row `row` in a forward of `num_tokens` tokens, the first `num_kept` of which stand
// at `position` and after it in the row; the rest is padding and shares the experts of the last segment, so
// that it costs no choice of its own. A run that began before `position` is carried. A forward that holds the
// beginning of a run must hold its selector too, unless that is an earlier token.
void append_segments(const RowRouting& routing, int64_t row, int64_t position, int64_t num_kept,
                     int64_t num_tokens, SegmentMap& map);

}  // namespace smoe
