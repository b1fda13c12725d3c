#include "prefix_attention.h"

#include <limits>
#include <optional>

#include "smoe/core/error.h"

namespace smoe {
namespace {

bool is_causal(const at::Tensor& q_BHTK, const KeysAndValues& own, const at::Tensor& mask_BTU) {
  return !mask_BTU.defined() && q_BHTK.size(2) == own.keys.size(2);
}

std::optional<at::Tensor> over_heads(const at::Tensor& mask_BTU) {
  return mask_BTU.defined() ? std::optional(mask_BTU.unsqueeze(1)) : std::nullopt;
}

// Sums of exponentials beside what attention gives.
struct AttentionPart {
  at::Tensor mixed_BHTK;
  at::Tensor lse_BHT;
};

// The queries of all rows, and of all heads that share a key head, become one long row, so that the keys are
// read once and not once a row.
AttentionPart attend_to_prefix(const at::Tensor& q_BHTK, const KeysAndValues& prefix) {
  const int64_t num_rows = q_BHTK.size(0);
  const int64_t num_heads = q_BHTK.size(1);
  const int64_t num_tokens = q_BHTK.size(2);
  const at::Tensor queries =
      q_BHTK.transpose(0, 1).reshape({1, prefix.keys.size(1), -1, q_BHTK.size(3)});  // [1, G, H/G * B * T, K]
  const auto [mixed, lse] =
      at::_scaled_dot_product_flash_attention_for_cpu(queries, prefix.keys, prefix.values);
  return {mixed.reshape({num_heads, num_rows, num_tokens, -1}).transpose(0, 1),
          lse.reshape({num_heads, num_rows, num_tokens}).transpose(0, 1)};
}

AttentionPart attend_to_own(const at::Tensor& q_BHTK, const KeysAndValues& own, const at::Tensor& mask_BTU) {
  const int64_t num_heads = q_BHTK.size(1);
  const auto [mixed, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      q_BHTK, repeat_heads(own.keys, num_heads), repeat_heads(own.values, num_heads), /*dropout_p=*/0.0,
      is_causal(q_BHTK, own, mask_BTU), over_heads(mask_BTU));
  return {mixed, lse};
}

// The two parts, joined by the shares that their sums of exponentials have in the whole.
at::Tensor attend_in_two_parts(const at::Tensor& q_BHTK, const KeysAndValues& prefix,
                               const KeysAndValues& own, const at::Tensor& mask_BTU) {
  const AttentionPart of_prefix = attend_to_prefix(q_BHTK, prefix);
  const AttentionPart of_own = attend_to_own(q_BHTK, own, mask_BTU);
  const at::Tensor share_BHT1 = at::sigmoid(of_prefix.lse_BHT - of_own.lse_BHT).unsqueeze(-1);
  return at::lerp(of_own.mixed_BHTK, of_prefix.mixed_BHTK, share_BHT1.to(q_BHTK.scalar_type()));
}

at::Tensor attend_to_copies(const at::Tensor& q_BHTK, const KeysAndValues& prefix, const KeysAndValues& own,
                            const at::Tensor& mask_BTU) {
  const int64_t num_rows = q_BHTK.size(0);
  const int64_t num_tokens = q_BHTK.size(2);
  const auto join = [&](const at::Tensor& first, const at::Tensor& second) {
    return repeat_heads(at::cat({first.expand({num_rows, -1, -1, -1}), second}, 2), q_BHTK.size(1));
  };
  at::Tensor own_BTU = mask_BTU;
  if (!own_BTU.defined()) {
    own_BTU = at::zeros({num_rows, num_tokens, own.keys.size(2)}, q_BHTK.options());
  }
  if (is_causal(q_BHTK, own, mask_BTU)) {
    own_BTU.fill_(-std::numeric_limits<double>::infinity()).triu_(1);
  }
  const at::Tensor seen_BTP = at::zeros({num_rows, num_tokens, prefix.keys.size(2)}, q_BHTK.options());
  return at::scaled_dot_product_attention(q_BHTK, join(prefix.keys, own.keys),
                                          join(prefix.values, own.values),
                                          at::cat({seen_BTP, own_BTU}, 2).unsqueeze(1));
}

}  // namespace

at::Tensor repeat_heads(const at::Tensor& x_BGTK, int64_t num_heads) {
  const int64_t group = num_heads / x_BGTK.size(1);
  return group == 1 ? x_BGTK : x_BGTK.repeat_interleave(group, 1);
}

at::Tensor prefix_attention(const at::Tensor& q_BHTK, const KeysAndValues& prefix, const KeysAndValues& own,
                            const at::Tensor& mask_BTU) {
  SMOE_ASSERT(!at::GradMode::is_enabled() && prefix.keys.size(0) == 1);
  // Only the CPU's kernel gives the sums of exponentials for every mask and data type.
  return q_BHTK.is_cpu() ? attend_in_two_parts(q_BHTK, prefix, own, mask_BTU)
                         : attend_to_copies(q_BHTK, prefix, own, mask_BTU);
}

}  // namespace smoe
