// Causal attention with rotary positions on the CPU, forward and backward: the path of training and scoring
// without a mask or a cache. LibTorch's fused CPU kernel reaches a third of the matrix-product peak at head
// width 64; this one cuts a head into blocks that stay in a core's cache, leaves out what lies above the
// diagonal, and lays every head out by itself while it rotates them.
//
// Shape legend: B rows, T tokens, H query heads, G key/value heads, K head width.
#pragma once

#include <ATen/ATen.h>

#include "smoe/model/layers.h"

namespace smoe {

struct HeadCounts {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
};

// Softmax(rotate(q) rotate(k)^T / sqrt(K)) v under the causal mask, [B, T, H*K]. `q` [B, T, H*K], `k` and `v`
// [B, T, G*K], float32 or float64 on the CPU, T > 0; `table` as of rotary_table, in their dtype.
// Differentiable once in q, k and v. Keeps the rotated q and k, v, the result and one number a token and
// head: no score is kept. Threads share the key/value heads of all rows; the result does not depend on
// their number.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const RotaryTable& table, const HeadCounts& heads);

}  // namespace smoe
