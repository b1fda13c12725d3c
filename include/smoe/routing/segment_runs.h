// The parts that a segment map is built of, row by row.
#pragma once

#include <cstdint>

#include "smoe/routing/segment_map.h"

namespace smoe {

// Document number of the tokens that fill a row up after its last document (Batch::documents_BT).
inline constexpr int64_t kPaddingDocument = -1;

// Appends the runs of tokens [begin, end) of `row`, each routed by its own first token.
void append_runs(SegmentMap& map, int64_t row, int64_t begin, int64_t end, int64_t segment_length);

// Padding from token `begin` to the end of the row shares the experts of the row's last segment, so that it
// makes no choice of its own, which loads, balance and statistics would count. A row of padding alone is one
// segment.
void append_padding(SegmentMap& map, int64_t row, int64_t begin);

}  // namespace smoe
