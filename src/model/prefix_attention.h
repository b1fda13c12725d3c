// Attention of many rows that all continue one prefix, without a copy of its keys for every row.
//
// Shape legend: B rows, H query heads, G key/value heads, T new tokens,
// U tokens after the prefix, P tokens of the prefix, K head width.
#pragma once

#include <ATen/ATen.h>

namespace smoe {

struct KeysAndValues {
  at::Tensor keys;
  at::Tensor values;
};

// Each key head once for every query head of its group: [B, G, T, K] to [B, num_heads, T, K].
at::Tensor repeat_heads(const at::Tensor& x_BGTK, int64_t num_heads);

// Every query of q [B, H, T, K] attends to the whole `prefix`, [1, G, P, K] each, and to `own`, [B, G, U, K]
// each, as `mask_BTU` says (0 or minus infinity; undefined: causal if U = T, else everything). Returns
// [B, H, T, K]. No gradients.
at::Tensor prefix_attention(const at::Tensor& q_BHTK, const KeysAndValues& prefix, const KeysAndValues& own,
                            const at::Tensor& mask_BTU);

}  // namespace smoe
