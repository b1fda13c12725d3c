// The building blocks that all three architectures share: RMSNorm, rotary positions, attention, SwiGLU.
//
// Shape legend: B rows, T tokens, D model width, F hidden width, H query heads, G key/value heads,
// K head width, N flattened tokens.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "smoe/model/kv_cache.h"
#include "smoe/model/model_config.h"

namespace smoe {

// gain * x / sqrt(mean(x^2) + epsilon) over the last dimension; the mean in float32 or wider.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double epsilon);

struct SwigluWeights {
  at::Tensor gate_FD;
  at::Tensor up_FD;
  at::Tensor down_DF;
};
// down( silu(gate x) * (up x) ) for x [..., D].
at::Tensor swiglu(const at::Tensor& x, const SwigluWeights& weights);

// Cosines and sines of the rotary embedding, [B or 1, 1, T, K/2] each.
struct RotaryTable {
  at::Tensor cos;
  at::Tensor sin;
};
// Angles positions * theta^(-2i/K) for i in 0..K/2-1, computed in float64, stored as `dtype`.
// `positions` int64 [T] or [B, T].
RotaryTable rotary_table(const at::Tensor& positions, int64_t head_dim, double theta, at::ScalarType dtype);

// Rotates the pairs (i, i + K/2) of the last dimension of x [B, H, T, K], the convention of Hugging Face
// Llama checkpoints.
at::Tensor apply_rotary(const at::Tensor& x_BHTK, const RotaryTable& table);

struct AttentionWeights {
  at::Tensor q_proj;  // [H*K, D]
  at::Tensor k_proj;  // [G*K, D]
  at::Tensor v_proj;  // [G*K, D]
  at::Tensor o_proj;  // [D, H*K]
  at::Tensor q_norm;  // [K], undefined without QK-norm
  at::Tensor k_norm;  // [K]
};

struct PackedDocuments;  // packed_attention.h

// The tokens before those of a forward, for one layer.
struct EarlierTokens {
  KvCache* cache = nullptr;                // gets the new keys and values too; the mask is then the cache's
  const KvCache* shared_prefix = nullptr;  // one row that all rows see whole; the mask leaves it out
  int64_t layer = 0;
};

// Grouped-query attention with rotary positions, scale 1/sqrt(K). `mask_BTT` is true (or 0) where a token may
// attend and false (or minus infinity) elsewhere, undefined for causal; every row must allow at least one
// key. With `documents`, not together with a mask or earlier tokens, attention is causal inside each of them.
at::Tensor attention(const at::Tensor& x_BTD, const AttentionWeights& weights, const ModelConfig& config,
                     const RotaryTable& table, const at::Tensor& mask_BTT, const EarlierTokens& earlier = {},
                     const PackedDocuments* documents = nullptr);

// 0 where `allowed` is true, minus infinity elsewhere: what attention adds to its scores.
at::Tensor additive_mask(const at::Tensor& allowed, at::ScalarType dtype);

// bool [B, T, T]: token i may attend to j <= i of the same document. `documents_BT` int64.
at::Tensor document_causal_mask(const at::Tensor& documents_BT);

// Identity whose gradient is multiplied by `scale` (0 detaches).
at::Tensor scale_gradient(const at::Tensor& x, double scale);

}  // namespace smoe
