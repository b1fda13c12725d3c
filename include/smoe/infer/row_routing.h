// Which tokens of a row share one choice of experts while the row grows: the segments of one forward, whether
// it brings a whole prompt, a piece of it or one new token.
#pragma once

#include <cstdint>

#include "smoe/routing/routing_mode.h"
#include "smoe/routing/segment_map.h"

namespace smoe {

struct RowRouting {
  RoutingMode mode = RoutingMode::kSegments;
  int64_t segment_length = 32;
  int64_t prompt_tokens = 0;

  // True if the token at `position` makes a new choice.
  bool begins_run(int64_t position) const;
  // The first position after `position` that begins a run.
  int64_t next_run(int64_t position) const;
};

// Appends the segments of row `row` in a forward of `num_tokens` tokens, the first `num_kept` of which stand
// at `position` and after it in the row; the rest is padding and shares the experts of the last segment, so
// that it costs no choice of its own. A run that began before `position` is carried. The forward that holds
// position 0 of a row routed by its last prompt token must hold the whole prompt.
void append_segments(const RowRouting& routing, int64_t row, int64_t position, int64_t num_kept,
                     int64_t num_tokens, SegmentMap& map);

}  // namespace smoe
