#include "smoe/infer/row_routing.h"

#include <algorithm>
#include <limits>

#include "smoe/core/error.h"
#include "smoe/routing/segment_runs.h"

namespace smoe {
namespace {

// A run that is routed as `position` says.
RowRouting::Run placed_run(int64_t begin, int64_t end, const RowRouting& routing) {
  const Segment segment =
      placed_segment(0, {0, begin, end}, routing.segment_length, routing.selector_position);
  return {begin, end, segment.selector, segment.selector_tokens};
}

}  // namespace

RowRouting::Run RowRouting::run_at(int64_t position) const {
  if (mode == RoutingMode::kSegments) {
    const int64_t begin = position / segment_length * segment_length;
    return placed_run(begin, begin + segment_length, *this);
  }
  int64_t turn_begin = 0;
  const ResponseSpan newest{prompt_tokens, std::numeric_limits<int64_t>::max()};
  for (size_t turn = 0; turn <= responses.size(); ++turn) {
    const ResponseSpan& response = turn < responses.size() ? responses[turn] : newest;
    const int64_t first_end = response.begin + std::min(segment_length, response.end - response.begin);
    if (position < first_end) return {turn_begin, first_end, response.begin - 1};
    if (position < response.end) {
      const int64_t begin = response.begin + (position - response.begin) / segment_length * segment_length;
      return placed_run(begin, std::min(begin + segment_length, response.end), *this);
    }
    turn_begin = response.end;
  }
  throw std::logic_error("the newest response has no end");
}

int64_t RowRouting::piece_end(int64_t position, int64_t most_tokens) const {
  const int64_t end = std::min(position + most_tokens, prompt_tokens);
  if (end == prompt_tokens) return end;
  const Run run = run_at(end);
  if (run.begin == end || run.selector < end) return end;
  return run.begin > position ? run.begin : run.selector + 1;
}

void append_segments(const RowRouting& routing, int64_t row, int64_t position, int64_t num_kept,
                     int64_t num_tokens, SegmentMap& map) {
  SMOE_ASSERT(num_kept >= 0 && num_kept <= num_tokens && position + num_kept > 0);
  if (num_kept == 0) {
    map.segments.push_back({row, 0, num_tokens, kCarriedSelector});
    return;
  }
  for (int64_t begin = 0; begin < num_kept;) {
    const RowRouting::Run run = routing.run_at(position + begin);
    const int64_t end = std::min(run.end - position, num_kept);
    Segment segment{row, begin, end < num_kept ? end : num_tokens, kCarriedSelector};
    if (run.begin == position + begin) {
      segment.selector = run.selector - position;
      segment.selector_tokens = run.selector_tokens;
      SMOE_ASSERT(segment.selector < num_kept);
    }
    map.segments.push_back(segment);
    begin = end;
  }
}

}  // namespace smoe
