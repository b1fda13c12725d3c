// Shape legend: N tokens, D model width, E experts, h expert width, Q segments, P pairs of a segment and one
// of its experts, R selected rows (a token counts once for each of its experts), A and B widths of matrices.
#include "routed_experts_grouped.h"

#include "expert_rows.h"

namespace smoe {
namespace {

at::ScalarType sum_type_of(const at::Tensor& tensor) {
  return at::promote_types(at::kFloat, tensor.scalar_type());
}

bool is_grouped(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16; }

// Calls run(expert, first row, number of rows) for each expert that has rows.
template <class Run>
void for_each_expert(const ExpertRows& rows, const Run& run) {
  int64_t begin = 0;
  for (size_t e = 0; e < rows.host_row_ends.size(); ++e) {
    const int64_t end = rows.host_row_ends[e];
    if (end > begin) run(static_cast<int64_t>(e), begin, end - begin);
    begin = end;
  }
}

// rows_RA * matrices_EAB, each row with the matrix of its expert.
at::Tensor multiply_rows(const at::Tensor& rows_RA, const at::Tensor& matrices_EAB, const ExpertRows& rows) {
  if (is_grouped(rows_RA)) return at::_grouped_mm(rows_RA, matrices_EAB, rows.row_ends_E);
  at::Tensor product_RB = at::empty({rows_RA.size(0), matrices_EAB.size(2)}, rows_RA.options());
  for_each_expert(rows, [&](int64_t e, int64_t begin, int64_t count) {
    at::Tensor product = product_RB.narrow(0, begin, count);
    at::mm_out(product, rows_RA.narrow(0, begin, count), matrices_EAB[e]);
  });
  return product_RB;
}

// For each expert left_RA' * right_RB over its rows, as [E, A, B]; zeros for experts without rows.
at::Tensor multiply_across_rows(const at::Tensor& left_RA, const at::Tensor& right_RB,
                                const ExpertRows& rows) {
  const at::Tensor& ends_E = rows.row_ends_E;
  if (is_grouped(left_RA)) {
    at::Tensor product_EAB = at::_grouped_mm(left_RA.t(), right_RB, ends_E);
    // Some kernels leave the product of an empty group undefined.
    const at::Tensor is_empty_E = at::diff(ends_E, 1, 0, ends_E.new_zeros({1})).eq(0);
    return product_EAB.masked_fill_(is_empty_E.view({-1, 1, 1}), 0);
  }
  at::Tensor product_EAB = at::zeros({ends_E.size(0), left_RA.size(1), right_RB.size(1)}, left_RA.options());
  for_each_expert(rows, [&](int64_t e, int64_t begin, int64_t count) {
    at::Tensor product = product_EAB[e];
    at::mm_out(product, left_RA.narrow(0, begin, count).t(), right_RB.narrow(0, begin, count));
  });
  return product_EAB;
}

// Sums of listed rows, one a bag, in the order of the list: unlike additions by atomics it gives the same
// result every time, and it needs no copy of the rows in the type of the sum.
at::Tensor sum_bags(const at::Tensor& rows, const at::Tensor& row_of_entry, const at::Tensor& bag_begin) {
  constexpr int64_t kSum = 0;
  return std::get<0>(at::_embedding_bag_forward_only(rows, row_of_entry, bag_begin,
                                                     /*scale_grad_by_freq=*/false, kSum));
}

at::Tensor sum_by_token(const at::Tensor& rows_RD, const ExpertRows& rows) {
  return sum_bags(rows_RD, rows.row_by_token_R, rows.token_begin_N);
}

at::Tensor chunk_forward(const at::Tensor& x_ND, const ExpertWeights& weights, const ExpertRows& rows) {
  const at::Tensor x_RD = x_ND.index_select(0, rows.token_R);
  at::Tensor hidden_Rh = multiply_rows(x_RD, weights.gate_EhD.transpose(1, 2), rows);
  at::silu_(hidden_Rh);
  hidden_Rh.mul_(multiply_rows(x_RD, weights.up_EhD.transpose(1, 2), rows)).mul_(rows.mask_R1);
  return sum_by_token(multiply_rows(hidden_Rh, weights.down_EDh.transpose(1, 2), rows), rows);
}

// The gradient of the mask [Q, E] of the chunk, from its rows.
at::Tensor mask_gradient(const at::Tensor& hidden_gradient_Rh, const at::Tensor& hidden_Rh,
                         const ExpertRows& rows, int64_t num_segments, int64_t num_experts) {
  const at::ScalarType sum_type = sum_type_of(hidden_Rh);
  const at::Tensor gradient_R1 =
      (hidden_gradient_Rh.to(sum_type) * hidden_Rh.to(sum_type)).sum(1, /*keepdim=*/true);
  const at::Tensor row_R = at::arange(gradient_R1.size(0), rows.token_R.options());
  const at::Tensor gradient_P = sum_bags(gradient_R1, row_R, rows.pair_begin_P).squeeze(1);
  at::Tensor gradient_QE = at::zeros({num_segments * num_experts}, gradient_P.options());
  return gradient_QE.scatter_(0, rows.entry_P, gradient_P).view({num_segments, num_experts});
}

RoutedExpertGradients chunk_backward(const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                                     const ExpertWeights& weights, const ExpertRows& rows,
                                     int64_t num_segments, NeededGradients needed) {
  RoutedExpertGradients gradients;
  const at::Tensor x_RD = x_ND.index_select(0, rows.token_R);
  const at::Tensor y_gradient_RD = y_gradient_ND.index_select(0, rows.token_R);
  const at::Tensor gate_Rh = multiply_rows(x_RD, weights.gate_EhD.transpose(1, 2), rows);
  const at::Tensor up_Rh = multiply_rows(x_RD, weights.up_EhD.transpose(1, 2), rows);
  const at::Tensor silu_Rh = at::silu(gate_Rh);
  at::Tensor hidden_Rh = silu_Rh * up_Rh;
  at::Tensor hidden_gradient_Rh = multiply_rows(y_gradient_RD, weights.down_EDh, rows);
  gradients.mask_QE =
      mask_gradient(hidden_gradient_Rh, hidden_Rh, rows, num_segments, weights.gate_EhD.size(0));

  hidden_gradient_Rh.mul_(rows.mask_R1);
  const at::Tensor gate_gradient_Rh = at::silu_backward(hidden_gradient_Rh * up_Rh, gate_Rh);
  const at::Tensor up_gradient_Rh = hidden_gradient_Rh * silu_Rh;
  if (needed.weights) {
    gradients.weights = {multiply_across_rows(gate_gradient_Rh, x_RD, rows),
                         multiply_across_rows(up_gradient_Rh, x_RD, rows),
                         multiply_across_rows(y_gradient_RD, hidden_Rh.mul_(rows.mask_R1), rows)};
  }
  if (needed.x) {
    at::Tensor x_gradient_RD = multiply_rows(gate_gradient_Rh, weights.gate_EhD, rows);
    x_gradient_RD.add_(multiply_rows(up_gradient_Rh, weights.up_EhD, rows));
    gradients.x_ND = sum_by_token(x_gradient_RD, rows);
  }
  return gradients;
}

// A sum over chunks: the first is taken as it is, further ones are added in float32.
void accumulate(at::Tensor& total, const at::Tensor& part) {
  if (!total.defined()) {
    total = part;
  } else {
    total = total.to(sum_type_of(total)).add_(part);
  }
}

at::Tensor join(const std::vector<at::Tensor>& parts) {
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

}  // namespace

at::Tensor routed_experts_grouped_forward(const at::Tensor& x_ND, const ExpertWeights& weights,
                                          const GroupedSelection& selection) {
  const auto& [mask_QE, selected_QE, layout] = selection;
  std::vector<at::Tensor> parts;
  for (const LayoutChunk& chunk : layout.chunks()) {
    const at::Tensor x_chunk = x_ND.narrow(0, chunk.first_token, chunk.num_tokens);
    if (chunk.num_rows == 0) {
      parts.push_back(at::zeros_like(x_chunk));
      continue;
    }
    parts.push_back(chunk_forward(x_chunk, weights,
                                  make_expert_rows(mask_QE, selected_QE, layout, chunk, !is_grouped(x_ND))));
  }
  return parts.empty() ? at::zeros_like(x_ND) : join(parts);
}

RoutedExpertGradients routed_experts_grouped_backward(const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                                                      const ExpertWeights& weights,
                                                      const GroupedSelection& selection,
                                                      NeededGradients needed) {
  const auto& [mask_QE, selected_QE, layout] = selection;
  const at::TensorOptions sum_options = x_ND.options().dtype(sum_type_of(x_ND));
  std::vector<at::Tensor> x_parts, mask_parts;
  RoutedExpertGradients total;
  for (const LayoutChunk& chunk : layout.chunks()) {
    const at::Tensor x_chunk = x_ND.narrow(0, chunk.first_token, chunk.num_tokens);
    if (chunk.num_rows == 0) {
      x_parts.push_back(at::zeros_like(x_chunk));
      mask_parts.push_back(at::zeros({chunk.num_segments, mask_QE.size(1)}, sum_options));
      continue;
    }
    const ExpertRows rows = make_expert_rows(mask_QE, selected_QE, layout, chunk, !is_grouped(x_ND));
    const RoutedExpertGradients part =
        chunk_backward(y_gradient_ND.narrow(0, chunk.first_token, chunk.num_tokens), x_chunk, weights, rows,
                       chunk.num_segments, needed);
    x_parts.push_back(part.x_ND);
    mask_parts.push_back(part.mask_QE);
    if (!needed.weights) continue;
    accumulate(total.weights.gate_EhD, part.weights.gate_EhD);
    accumulate(total.weights.up_EhD, part.weights.up_EhD);
    accumulate(total.weights.down_EDh, part.weights.down_EDh);
  }
  if (needed.weights && !total.weights.gate_EhD.defined()) {
    total.weights = {at::zeros_like(weights.gate_EhD), at::zeros_like(weights.up_EhD),
                     at::zeros_like(weights.down_EDh)};
  }
  if (needed.x) total.x_ND = x_parts.empty() ? at::zeros_like(x_ND) : join(x_parts);
  total.mask_QE = mask_parts.empty() ? at::zeros(mask_QE.sizes(), sum_options) : join(mask_parts);
  return total;
}

}  // namespace smoe
