#include "smoe/routing/segment_map.h"

#include <stdexcept>

#include "smoe/core/error.h"
#include "smoe/routing/segment_runs.h"

namespace smoe {
namespace {

[[noreturn]] void reject(size_t index, const Segment& segment, const std::string& reason) {
  throw std::logic_error(fmt::format("segment {} (row {}, tokens [{}, {}), selector {}): {}", index,
                                     segment.row, segment.begin, segment.end, segment.selector, reason));
}

}  // namespace

at::Tensor SegmentMap::segment_rows() const {
  at::Tensor rows_Q = at::empty({num_segments()}, at::kLong);
  int64_t* const out = rows_Q.mutable_data_ptr<int64_t>();
  for (size_t q = 0; q < segments.size(); ++q) out[q] = segments[q].row;
  return rows_Q;
}

void SegmentMap::check() const {
  if (num_rows < 0 || num_tokens < 0) {
    throw std::logic_error(
        fmt::format("a segment map of {} rows and {} tokens is impossible", num_rows, num_tokens));
  }
  // The place where the next segment has to begin, as rows and tokens already tiled.
  int64_t row = 0;
  int64_t token = 0;
  for (size_t q = 0; q < segments.size(); ++q) {
    const Segment& segment = segments[q];
    if (row >= num_rows || num_tokens == 0) reject(q, segment, "the batch is already tiled");
    if (segment.row != row || segment.begin != token) {
      reject(q, segment, fmt::format("expected the segment that begins at row {}, token {}", row, token));
    }
    if (segment.end <= segment.begin || segment.end > num_tokens) {
      reject(q, segment, fmt::format("its end must lie in ({}, {}]", segment.begin, num_tokens));
    }
    if (segment.selector != kCarriedSelector && (segment.selector < 0 || segment.selector >= num_tokens)) {
      reject(q, segment, fmt::format("its selector must lie in [0, {})", num_tokens));
    }
    if (segment.selector != kCarriedSelector &&
        (segment.selector_tokens < 1 || segment.selector_tokens > segment.selector + 1)) {
      reject(q, segment,
             fmt::format("a mean over {} selector tokens is impossible", segment.selector_tokens));
    }
    token = segment.end;
    if (token == num_tokens) {
      token = 0;
      ++row;
    }
  }
  if (num_tokens > 0 && row < num_rows) {
    throw std::logic_error(
        fmt::format("segments do not tile the batch: nothing covers row {}, token {} ({} rows of {})", row,
                    token, num_rows, num_tokens));
  }
}

SegmentMap fixed_segments(int64_t num_rows, int64_t num_tokens, int64_t segment_length,
                          SelectorPosition position) {
  SMOE_ASSERT(num_rows >= 0 && num_tokens >= 0 && segment_length >= 1);
  SegmentMap map{num_rows, num_tokens, {}};
  map.segments.reserve(static_cast<size_t>(num_rows * ((num_tokens + segment_length - 1) / segment_length)));
  for (int64_t row = 0; row < num_rows; ++row)
    append_runs(map, row, {0, 0, num_tokens}, segment_length, position);
  return map;
}

SegmentMap fixed_segments(const at::Tensor& documents_BT, int64_t segment_length, SelectorPosition position) {
  SMOE_ASSERT(documents_BT.dim() == 2 && documents_BT.scalar_type() == at::kLong && segment_length >= 1);
  const at::Tensor cpu_BT = documents_BT.cpu().contiguous();
  SegmentMap map{cpu_BT.size(0), cpu_BT.size(1), {}};
  for (int64_t row = 0; row < map.num_rows; ++row) {
    const int64_t* const documents = cpu_BT.const_data_ptr<int64_t>() + row * map.num_tokens;
    int64_t num_used = map.num_tokens;
    while (num_used > 0 && documents[num_used - 1] == kPaddingDocument) --num_used;
    for (int64_t begin = 0, end = 0; begin < num_used; begin = end) {
      while (end < num_used && documents[end] == documents[begin]) ++end;
      append_runs(map, row, {begin, begin, end}, segment_length, position);
    }
    append_padding(map, row, num_used);
  }
  return map;
}

}  // namespace smoe
