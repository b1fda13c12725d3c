// What the host knows of a routing before the device has computed it: where the segments lie and how many
// experts each will select. With this the sizes of all tensors of the grouped experts are known in advance,
// and nothing has to be read back from the device.
//
// Shape legend: N tokens, Q segments.
#pragma once

#include <ATen/ATen.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <vector>

#include "smoe/model/routed_experts.h"

namespace smoe {

// Segments whose rows are computed together: a part of the batch, so that the copies of the selected rows fit
// into a bounded memory.
struct LayoutChunk {
  int64_t first_segment = 0;
  int64_t num_segments = 0;
  int64_t first_token = 0;
  int64_t num_tokens = 0;
  int64_t num_pairs = 0;  // of a segment that has tokens and an expert selected by it
  int64_t num_rows = 0;   // of a token and an expert
};

// One of these serves all layers of a forward that share segments and counts.
class SegmentLayout : public torch::CustomClassHolder {
 public:
  // `count_Q` int64 on the CPU: experts that each segment selects. A chunk has at most `max_chunk_rows` rows
  // unless a single segment has more.
  SegmentLayout(const std::vector<TokenRange>& ranges, const at::Tensor& count_Q, at::Device device,
                int64_t max_chunk_rows);

  const std::vector<LayoutChunk>& chunks() const { return chunks_; }
  int64_t num_segments() const { return num_segments_; }
  int64_t num_tokens() const { return num_tokens_; }
  bool has_empty_segments() const { return has_empty_segments_; }

  // int64 [Q] on the device. The count of a segment without tokens is 0.
  const at::Tensor& begin_Q() const { return begin_Q_; }
  const at::Tensor& length_Q() const { return length_Q_; }
  const at::Tensor& count_Q() const { return count_Q_; }

 private:
  void divide(const at::Tensor& host_begin_Q, const at::Tensor& host_length_Q, const at::Tensor& host_count_Q,
              int64_t max_chunk_rows);

  std::vector<LayoutChunk> chunks_;
  int64_t num_segments_ = 0;
  int64_t num_tokens_ = 0;
  bool has_empty_segments_ = false;
  at::Tensor begin_Q_, length_Q_, count_Q_;
};

// Rows a chunk may have so that one copy of them, `dim` values of `dtype` wide, takes no more than 2 GiB.
int64_t default_chunk_rows(int64_t dim, at::ScalarType dtype);

}  // namespace smoe
