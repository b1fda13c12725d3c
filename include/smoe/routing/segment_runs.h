// The parts that a segment map is built of, row by row.
#pragma once

#include <cstdint>

#include "smoe/routing/segment_map.h"

namespace smoe {

// Document number of the tokens that fill a row up after its last document (Batch::documents_BT).
inline constexpr int64_t kPaddingDocument = -1;

// Tokens [begin, end) of a row; `first` is the first token of their document, before which no selector lies.
struct TokenSpan {
  int64_t first = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// The segment [begin, end) of `row` with the selector that `position` says.
Segment placed_segment(int64_t row, const TokenSpan& span, int64_t segment_length, SelectorPosition position);

// Appends the runs of tokens [begin, end) of `row`.
void append_runs(SegmentMap& map, int64_t row, const TokenSpan& span, int64_t segment_length,
                 SelectorPosition position);

// Padding from token `begin` to the end of the row shares the experts of the row's last segment, so that it
// makes no choice of its own, which loads, balance and statistics would count. A row of padding alone is one
// segment.
void append_padding(SegmentMap& map, int64_t row, int64_t begin);

}  // namespace smoe
