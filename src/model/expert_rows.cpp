#include "expert_rows.h"

namespace smoe {
namespace {

// 0 repeated counts[0] times, then 1, and so on; `total` is the sum of the counts.
at::Tensor repeat_indices(const at::Tensor& counts, int64_t total) {
  return at::repeat_interleave(counts, std::optional<int64_t>(total));
}

}  // namespace

ExpertRows make_expert_rows(const at::Tensor& mask_QE, const at::Tensor& selected_QE,
                            const SegmentLayout& layout, const LayoutChunk& chunk, bool reads_ends) {
  const auto of_chunk = [&](const at::Tensor& all) {
    return all.narrow(0, chunk.first_segment, chunk.num_segments);
  };
  const int64_t num_experts = selected_QE.size(1);
  const at::Tensor length_Q = of_chunk(layout.length_Q());
  at::Tensor chosen_QE = of_chunk(selected_QE);
  if (layout.has_empty_segments()) chosen_QE = chosen_QE.logical_and(length_Q.gt(0).unsqueeze(1));
  const at::Tensor chosen_EQ = chosen_QE.t().contiguous();

  // In row-major order, hence by expert; its size is known, so that nothing has to be counted first.
  const at::Tensor pairs_P2 = at::nonzero_static(chosen_EQ, chunk.num_pairs);
  const at::Tensor segment_P = pairs_P2.select(1, 1);
  const at::Tensor length_P = length_Q.index_select(0, segment_P);
  ExpertRows rows;
  rows.entry_P = segment_P * num_experts + pairs_P2.select(1, 0);
  rows.pair_begin_P = length_P.cumsum(0) - length_P;
  rows.pair_R = repeat_indices(length_P, chunk.num_rows);
  const at::Tensor shift_P =
      of_chunk(layout.begin_Q()).index_select(0, segment_P) - chunk.first_token - rows.pair_begin_P;
  rows.token_R = shift_P.index_select(0, rows.pair_R) + at::arange(chunk.num_rows, shift_P.options());
  rows.mask_R1 =
      of_chunk(mask_QE).reshape({-1}).index_select(0, rows.entry_P).index_select(0, rows.pair_R).unsqueeze(1);
  rows.row_ends_E = (chosen_EQ * length_Q).sum(1).cumsum(0).to(at::kInt);
  rows.row_by_token_R = at::argsort(rows.token_R, /*stable=*/true);
  const at::Tensor count_N =
      of_chunk(layout.count_Q()).index_select(0, repeat_indices(length_Q, chunk.num_tokens));
  rows.token_begin_N = count_N.cumsum(0) - count_N;
  if (reads_ends) {
    const at::Tensor ends_E = rows.row_ends_E.to(at::kCPU, at::kLong);
    const int64_t* const ends = ends_E.const_data_ptr<int64_t>();
    rows.host_row_ends.assign(ends, ends + num_experts);
  }
  return rows;
}

}  // namespace smoe
