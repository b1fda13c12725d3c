// Which token's hidden state routes which tokens, as data. Model code sees only this map; how it
// comes about (fixed segments, packed documents, prompts and responses) is decided where it is built.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace smoe {

// Selector of a segment that goes on with experts chosen earlier, outside this batch (generation).
inline constexpr int64_t kCarriedSelector = -1;

// A run of tokens [begin, end) of batch row `row` that share one choice of experts, and the token
// `selector` of the same row whose hidden state makes the choice. The selector may lie outside the
// run (a prompt is routed by its last token; a continuation by a token of its context).
struct Segment {
  int64_t row = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t selector = 0;

  friend bool operator==(const Segment&, const Segment&) = default;
};

// The segments of a batch of `num_rows` rows of `num_tokens` tokens; together they cover every token
// exactly once, ordered by (row, begin).
struct SegmentMap {
  int64_t num_rows = 0;
  int64_t num_tokens = 0;
  std::vector<Segment> segments;

  int64_t num_segments() const { return static_cast<int64_t>(segments.size()); }
  // No segment may be a carried one. int64 [Q] on the CPU: row * num_tokens + selector, to gather from a
  // flattened [B*T, D].
  at::Tensor selector_indices() const;
  // int64 [Q]: the batch row of each segment.
  at::Tensor segment_rows() const;
  // Throws std::logic_error if the segments do not tile the batch or a selector is out of range.
  void check() const;
};

// Pre-training segments (paper 2.4.1): runs of `segment_length` tokens from position 0 of each row,
// routed by their first token; the last run of a row may be shorter.
SegmentMap fixed_segments(int64_t num_rows, int64_t num_tokens, int64_t segment_length);

// The same, with runs starting anew at every document border. `documents_BT` int64 [B, T]: a run of
// equal numbers is one document.
SegmentMap fixed_segments(const at::Tensor& documents_BT, int64_t segment_length);

}  // namespace smoe
