// Which token's hidden state routes which tokens, as data. Model code sees only this map; how it
// comes about (fixed segments, packed documents, prompts and responses) is decided where it is built.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "smoe/routing/routing_config.h"

namespace smoe {

// Selector of a segment that goes on with experts chosen earlier, outside this batch (generation).
inline constexpr int64_t kCarriedSelector = std::numeric_limits<int64_t>::min();

// A run of tokens [begin, end) of batch row `row` that share one choice of experts, and the token
// `selector` of the same row whose hidden state makes the choice: the mean over the `selector_tokens` tokens
// that end with it, usually one. The selector may lie outside the run (a prompt is routed by its last token;
// a continuation by a token of its context). Where the row continues a cache, negative numbers are the tokens
// that it holds: -1 the last of them.
struct Segment {
  int64_t row = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t selector = 0;
  int64_t selector_tokens = 1;

  friend bool operator==(const Segment&, const Segment&) = default;
};

// The segments of a batch of `num_rows` rows of `num_tokens` tokens; together they cover every token
// exactly once, ordered by (row, begin).
struct SegmentMap {
  int64_t num_rows = 0;
  int64_t num_tokens = 0;
  std::vector<Segment> segments;

  int64_t num_segments() const { return static_cast<int64_t>(segments.size()); }
  // int64 [Q]: the batch row of each segment.
  at::Tensor segment_rows() const;
  // Throws std::logic_error if the segments do not tile the batch or a selector is out of range.
  void check() const;
};

// Pre-training segments (paper 2.4.1): runs of `segment_length` tokens from position 0 of each row; the last
// run of a row may be shorter. The first run has no token before it and is routed by its own first one
// whatever `position` says.
SegmentMap fixed_segments(int64_t num_rows, int64_t num_tokens, int64_t segment_length,
                          SelectorPosition position = SelectorPosition::kFirst);

// The same, with runs starting anew at every document border. `documents_BT` int64 [B, T]: a run of
// equal numbers is one document.
SegmentMap fixed_segments(const at::Tensor& documents_BT, int64_t segment_length,
                          SelectorPosition position = SelectorPosition::kFirst);

}  // namespace smoe
