// Routed experts in ATen operators, for CUDA: rows sorted by expert, one grouped matrix product over all
// experts in bfloat16, one product an expert in other types. The list of rows is host data and is copied
// once; nothing here waits for the device. Holds copies of the selected rows while it runs, not between
// calls.
//
// Shape legend: N tokens, D model width, E experts, h expert width, Q segments, R selected rows (a token
// counts once for each of its experts).
#include "routed_experts_paths.h"

namespace smoe {
namespace {

// The schedule row by row, on the device.
struct SortedRows {
  at::Tensor token_R;        // int64: row of x
  at::Tensor entry_R;        // int64: element of the flattened [Q, E] mask
  at::Tensor mask_R1;        // in x's dtype
  at::Tensor row_offsets_E;  // int32: end of each expert's rows
};

template <class Value>
at::Tensor to_device(const std::vector<Value>& values, at::Device device) {
  // cloned, because the copy to the device may outlive `values`
  return at::from_blob(const_cast<Value*>(values.data()), {static_cast<int64_t>(values.size())},
                       c10::CppTypeToScalarType<Value>::value)
      .clone()
      .to(device);
}

SortedRows sort_rows(const ExpertSchedule& schedule, const at::Tensor& x_ND) {
  std::vector<int64_t> tokens;
  std::vector<int64_t> entries;
  std::vector<double> masks;
  std::vector<int32_t> row_offsets;
  tokens.reserve(schedule.total_rows);
  entries.reserve(schedule.total_rows);
  masks.reserve(schedule.total_rows);
  for (int64_t e = 0; e < schedule.num_experts(); ++e) {
    for (int64_t index = schedule.first_run[e]; index < schedule.first_run[e + 1]; ++index) {
      const ExpertRun& run = schedule.runs[index];
      for (int64_t row = run.begin; row < run.begin + run.count; ++row) {
        tokens.push_back(row);
        entries.push_back(run.segment * schedule.num_experts() + e);
        masks.push_back(run.mask);
      }
    }
    row_offsets.push_back(static_cast<int32_t>(tokens.size()));
  }
  return {to_device(tokens, x_ND.device()), to_device(entries, x_ND.device()),
          to_device(masks, x_ND.device()).to(x_ND.scalar_type()).unsqueeze(1),
          to_device(row_offsets, x_ND.device())};
}

// rows_RA * matrices_EAB, each row with the matrix of its expert.
at::Tensor multiply_rows(const at::Tensor& rows_RA, const at::Tensor& matrices_EAB,
                         const ExpertSchedule& schedule, const SortedRows& sorted) {
  if (rows_RA.scalar_type() == at::kBFloat16) {
    return at::_grouped_mm(rows_RA, matrices_EAB, sorted.row_offsets_E);
  }
  at::Tensor product_RB = at::empty({rows_RA.size(0), matrices_EAB.size(2)}, rows_RA.options());
  int64_t begin = 0;
  for (int64_t e = 0; e < schedule.num_experts(); ++e) {
    const int64_t count = schedule.num_rows[e];
    if (count > 0) {
      at::Tensor product = product_RB.narrow(0, begin, count);
      at::mm_out(product, rows_RA.narrow(0, begin, count), matrices_EAB[e]);
    }
    begin += count;
  }
  return product_RB;
}

// For each expert left_RA' * right_RB over its rows, as [E, A, B]; zeros for experts without rows.
at::Tensor multiply_across_rows(const at::Tensor& left_RA, const at::Tensor& right_RB,
                                const ExpertSchedule& schedule, const SortedRows& sorted) {
  if (left_RA.scalar_type() == at::kBFloat16) {
    at::Tensor product_EAB = at::_grouped_mm(left_RA.t(), right_RB, sorted.row_offsets_E);
    // Some kernels leave the product of an empty group undefined.
    for (int64_t e = 0; e < schedule.num_experts(); ++e) {
      if (schedule.num_rows[e] == 0) {
        product_EAB[e].zero_();
      }
    }
    return product_EAB;
  }
  at::Tensor product_EAB =
      at::zeros({schedule.num_experts(), left_RA.size(1), right_RB.size(1)}, left_RA.options());
  int64_t begin = 0;
  for (int64_t e = 0; e < schedule.num_experts(); ++e) {
    const int64_t count = schedule.num_rows[e];
    if (count > 0) {
      at::Tensor product = product_EAB[e];
      at::mm_out(product, left_RA.narrow(0, begin, count).t(), right_RB.narrow(0, begin, count));
    }
    begin += count;
  }
  return product_EAB;
}

// Sums the rows of each token, in float32 at least.
at::Tensor sum_by_token(const at::Tensor& rows_RD, const SortedRows& sorted, const at::Tensor& like_ND) {
  const at::ScalarType sum_type = at::promote_types(at::kFloat, rows_RD.scalar_type());
  at::Tensor sum_ND = at::zeros(like_ND.sizes(), like_ND.options().dtype(sum_type));
  sum_ND.index_add_(0, sorted.token_R, rows_RD.to(sum_type));
  return sum_ND.to(like_ND.scalar_type());
}

}  // namespace

at::Tensor routed_experts_grouped_forward(const at::Tensor& x_ND, const ExpertWeights& weights,
                                          const ExpertSchedule& schedule) {
  if (schedule.total_rows == 0) {
    return at::zeros_like(x_ND);
  }
  const SortedRows sorted = sort_rows(schedule, x_ND);
  const at::Tensor x_RD = x_ND.index_select(0, sorted.token_R);
  at::Tensor hidden_Rh = multiply_rows(x_RD, weights.gate_EhD.transpose(1, 2), schedule, sorted);
  at::silu_(hidden_Rh);
  hidden_Rh.mul_(multiply_rows(x_RD, weights.up_EhD.transpose(1, 2), schedule, sorted)).mul_(sorted.mask_R1);
  return sum_by_token(multiply_rows(hidden_Rh, weights.down_EDh.transpose(1, 2), schedule, sorted), sorted,
                      x_ND);
}

RoutedExpertGradients routed_experts_grouped_backward(const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                                                      const ExpertWeights& weights,
                                                      const ExpertSchedule& schedule, int64_t num_segments,
                                                      NeededGradients needed) {
  RoutedExpertGradients gradients;
  const at::ScalarType sum_type = at::promote_types(at::kFloat, x_ND.scalar_type());
  gradients.mask_QE = at::zeros({num_segments, schedule.num_experts()}, x_ND.options().dtype(sum_type));
  if (schedule.total_rows == 0) {
    gradients.x_ND = at::zeros_like(x_ND);
    gradients.weights = {at::zeros_like(weights.gate_EhD), at::zeros_like(weights.up_EhD),
                         at::zeros_like(weights.down_EDh)};
    return gradients;
  }
  const SortedRows sorted = sort_rows(schedule, x_ND);
  const at::Tensor x_RD = x_ND.index_select(0, sorted.token_R);
  const at::Tensor y_gradient_RD = y_gradient_ND.index_select(0, sorted.token_R);
  const at::Tensor gate_Rh = multiply_rows(x_RD, weights.gate_EhD.transpose(1, 2), schedule, sorted);
  const at::Tensor up_Rh = multiply_rows(x_RD, weights.up_EhD.transpose(1, 2), schedule, sorted);
  const at::Tensor silu_Rh = at::silu(gate_Rh);
  const at::Tensor hidden_Rh = silu_Rh * up_Rh;
  const at::Tensor hidden_gradient_Rh = multiply_rows(y_gradient_RD, weights.down_EDh, schedule, sorted);

  const at::Tensor mask_gradient_R = (hidden_gradient_Rh.to(sum_type) * hidden_Rh.to(sum_type)).sum(1);
  gradients.mask_QE.view(-1).index_add_(0, sorted.entry_R, mask_gradient_R);

  const at::Tensor masked_gradient_Rh = hidden_gradient_Rh * sorted.mask_R1;
  const at::Tensor gate_gradient_Rh = at::silu_backward(masked_gradient_Rh * up_Rh, gate_Rh);
  const at::Tensor up_gradient_Rh = masked_gradient_Rh * silu_Rh;
  if (needed.weights) {
    gradients.weights = {multiply_across_rows(gate_gradient_Rh, x_RD, schedule, sorted),
                         multiply_across_rows(up_gradient_Rh, x_RD, schedule, sorted),
                         multiply_across_rows(y_gradient_RD, hidden_Rh * sorted.mask_R1, schedule, sorted)};
  }
  if (needed.x) {
    at::Tensor x_gradient_RD = multiply_rows(gate_gradient_Rh, weights.gate_EhD, schedule, sorted);
    x_gradient_RD.add_(multiply_rows(up_gradient_Rh, weights.up_EhD, schedule, sorted));
    gradients.x_ND = sum_by_token(x_gradient_RD, sorted, x_ND);
  }
  return gradients;
}

}  // namespace smoe
