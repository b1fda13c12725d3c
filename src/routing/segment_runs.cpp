#include "smoe/routing/segment_runs.h"

#include <algorithm>

namespace smoe {

Segment placed_segment(int64_t row, const TokenSpan& span, int64_t segment_length,
                       SelectorPosition position) {
  const auto [first, begin, end] = span;
  if (position == SelectorPosition::kFirst || begin == first) return {row, begin, end, begin};
  const bool is_mean = position == SelectorPosition::kPreviousMean;
  return {row, begin, end, begin - 1, is_mean ? std::min(segment_length, begin - first) : 1};
}

void append_runs(SegmentMap& map, int64_t row, const TokenSpan& span, int64_t segment_length,
                 SelectorPosition position) {
  for (int64_t begin = span.begin; begin < span.end; begin += segment_length) {
    const TokenSpan run{span.first, begin, std::min(begin + segment_length, span.end)};
    map.segments.push_back(placed_segment(row, run, segment_length, position));
  }
}

void append_padding(SegmentMap& map, int64_t row, int64_t begin) {
  if (begin == map.num_tokens) return;
  if (begin == 0) {
    map.segments.push_back({row, 0, map.num_tokens, 0});
  } else {
    map.segments.back().end = map.num_tokens;
  }
}

}  // namespace smoe
