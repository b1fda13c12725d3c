#include "smoe/model/segment_layout.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/routing/host_to_device.h"

namespace smoe {

SegmentLayout::SegmentLayout(const std::vector<TokenRange>& ranges, const at::Tensor& count_Q,
                             at::Device device, int64_t max_chunk_rows)
    : num_segments_(static_cast<int64_t>(ranges.size())),
      num_tokens_(ranges.empty() ? 0 : ranges.back().end) {
  SMOE_ASSERT(count_Q.is_cpu() && count_Q.scalar_type() == at::kLong && count_Q.numel() == num_segments_);
  const at::Tensor host_begin_Q = at::empty({num_segments_}, at::kLong);
  const at::Tensor host_length_Q = at::empty({num_segments_}, at::kLong);
  for (int64_t q = 0; q < num_segments_; ++q) {
    const TokenRange& range = ranges[static_cast<size_t>(q)];
    host_begin_Q.mutable_data_ptr<int64_t>()[q] = range.begin;
    host_length_Q.mutable_data_ptr<int64_t>()[q] = range.end - range.begin;
    has_empty_segments_ = has_empty_segments_ || range.begin == range.end;
  }
  const at::Tensor host_count_Q = has_empty_segments_ ? count_Q * host_length_Q.gt(0) : count_Q.contiguous();
  divide(host_begin_Q, host_length_Q, host_count_Q, max_chunk_rows);
  begin_Q_ = copy_to_device(host_begin_Q, device);
  length_Q_ = copy_to_device(host_length_Q, device);
  count_Q_ = copy_to_device(host_count_Q, device);
}

void SegmentLayout::divide(const at::Tensor& host_begin_Q, const at::Tensor& host_length_Q,
                           const at::Tensor& host_count_Q, int64_t max_chunk_rows) {
  const int64_t* begin = host_begin_Q.const_data_ptr<int64_t>();
  const int64_t* length = host_length_Q.const_data_ptr<int64_t>();
  const int64_t* count = host_count_Q.const_data_ptr<int64_t>();
  for (int64_t q = 0; q < num_segments_; ++q) {
    const int64_t rows = length[q] * count[q];
    if (chunks_.empty() || (chunks_.back().num_rows > 0 && chunks_.back().num_rows + rows > max_chunk_rows)) {
      chunks_.push_back({.first_segment = q, .first_token = begin[q]});
    }
    LayoutChunk& chunk = chunks_.back();
    ++chunk.num_segments;
    chunk.num_tokens += length[q];
    chunk.num_pairs += count[q];
    chunk.num_rows += rows;
  }
}

int64_t default_chunk_rows(int64_t dim, at::ScalarType dtype) {
  constexpr int64_t kMaxBytes = int64_t{2} << 30;
  return std::max<int64_t>(1, kMaxBytes / (dim * static_cast<int64_t>(c10::elementSize(dtype))));
}

}  // namespace smoe
