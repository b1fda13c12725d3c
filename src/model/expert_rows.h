// The rows of grouped experts: which token each expert computes, sorted by expert, made on the device.
//
// Shape legend: N tokens, E experts, Q segments, P pairs of a segment and one of its experts, R rows (a token
// counts once for each of its experts).
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "smoe/model/segment_layout.h"

namespace smoe {

// Pairs are sorted by expert, then by segment; rows by pair, then by token.
struct ExpertRows {
  at::Tensor token_R;                  // int64: token within the chunk
  at::Tensor pair_R;                   // int64
  at::Tensor entry_P;                  // int64: element of the chunk's flattened mask [Q, E]
  at::Tensor pair_begin_P;             // int64: first row of each pair
  at::Tensor mask_R1;                  // float32 or the type of the mask
  at::Tensor row_ends_E;               // int32: end of each expert's rows
  at::Tensor row_by_token_R;           // int64: rows sorted by token
  at::Tensor token_begin_N;            // int64: first entry of each token in row_by_token_R
  std::vector<int64_t> host_row_ends;  // of row_ends_E; empty where nothing asked for them
};

// `selected_QE` is bool and has exactly the layout's counts of true entries a segment; both it and `mask_QE`
// are those of all segments. `reads_ends` copies the row ends to the host, which waits for the device.
ExpertRows make_expert_rows(const at::Tensor& mask_QE, const at::Tensor& selected_QE,
                            const SegmentLayout& layout, const LayoutChunk& chunk, bool reads_ends);

}  // namespace smoe
