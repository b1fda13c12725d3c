#include "smoe/infer/row_routing.h"

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {

bool RowRouting::begins_run(int64_t position) const {
  if (mode == RoutingMode::kSegments) return position % segment_length == 0;
  const int64_t response = position - prompt_tokens;
  return position == 0 || (response >= segment_length && response % segment_length == 0);
}

int64_t RowRouting::next_run(int64_t position) const {
  if (mode == RoutingMode::kSegments) return (position / segment_length + 1) * segment_length;
  const int64_t response = std::max<int64_t>(position - prompt_tokens, 0);
  return prompt_tokens + (response / segment_length + 1) * segment_length;
}

void append_segments(const RowRouting& routing, int64_t row, int64_t position, int64_t num_kept,
                     int64_t num_tokens, SegmentMap& map) {
  SMOE_ASSERT(num_kept >= 0 && num_kept <= num_tokens && position + num_kept > 0);
  if (num_kept == 0) {
    map.segments.push_back({row, 0, num_tokens, kCarriedSelector});
    return;
  }
  for (int64_t begin = 0; begin < num_kept;) {
    const int64_t start = position + begin;
    const int64_t end = std::min(routing.next_run(start) - position, num_kept);
    int64_t selector = routing.begins_run(start) ? begin : kCarriedSelector;
    if (routing.mode == RoutingMode::kLastPromptToken && start == 0) {
      SMOE_ASSERT(routing.prompt_tokens <= num_kept);
      selector = routing.prompt_tokens - 1;
    }
    map.segments.push_back({row, begin, end < num_kept ? end : num_tokens, selector});
    begin = end;
  }
}

}  // namespace smoe
