#include "encoded_weights.h"

#include "smoe/core/error.h"

namespace smoe {

void EncodedWeights::encode(at::Tensor& weight, ExpertEncoding encoding) {
  SMOE_ASSERT(weight.is_cpu() && weight.scalar_type() == at::kFloat && weight.is_contiguous());
  if (encoding == ExpertEncoding::kFloat32) return;
  const at::NoGradGuard no_gradients;
  Copy copy{encoding, {}, {}};
  if (encoding == ExpertEncoding::kBfloat16) {
    copy.values = weight.to(at::kBFloat16);
    weight.copy_(copy.values);
  } else {
    const at::Tensor scales = weight.abs().amax(-1, true) / 127.0F;
    // A row of zeros has no scale of its own.
    const at::Tensor divisors = at::where(scales.gt(0), scales, at::ones_like(scales));
    copy.values = at::round(weight / divisors).to(at::kChar);
    copy.scales = divisors.squeeze(-1).contiguous();
    weight.copy_(copy.values.to(at::kFloat) * divisors);
  }
  copies_[weight.const_data_ptr()] = std::move(copy);
}

EncodedMatrix EncodedWeights::slice(const at::Tensor& weight, int64_t index) const {
  const int64_t rows = weight.size(-2), columns = weight.size(-1);
  const auto found = copies_.find(weight.const_data_ptr());
  if (found == copies_.end()) {
    SMOE_ASSERT(weight.is_contiguous());
    return {ExpertEncoding::kFloat32, weight.const_data_ptr<float>() + index * rows * columns, nullptr, rows,
            columns};
  }
  const Copy& copy = found->second;
  const EncodedMatrix all{copy.encoding, copy.values.const_data_ptr(),
                          copy.scales.defined() ? copy.scales.const_data_ptr<float>() : nullptr,
                          copy.values.numel() / columns, columns};
  return rows_of(all, index * rows, rows);
}

ExpertView EncodedWeights::expert(const ExpertWeights& weights, int64_t expert) const {
  const EncodedMatrix gate = slice(weights.gate_EhD, expert);
  const EncodedMatrix up = slice(weights.up_EhD, expert);
  const EncodedMatrix down = slice(weights.down_EDh, expert);
  return {gate.encoding, gate.data, up.data, down.data, gate.row_scale, up.row_scale, down.row_scale};
}

}  // namespace smoe
