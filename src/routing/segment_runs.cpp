#include "smoe/routing/segment_runs.h"

#include <algorithm>

namespace smoe {

void append_runs(SegmentMap& map, int64_t row, int64_t begin, int64_t end, int64_t segment_length) {
  for (int64_t start = begin; start < end; start += segment_length) {
    map.segments.push_back({row, start, std::min(start + segment_length, end), start});
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
