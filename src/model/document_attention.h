// Causal attention inside each document of packed rows, document by document: memory grows with the length of
// the rows, not with its square as a mask would, and nothing is computed across documents.
//
// Shape legend: B rows, H heads, T tokens, K head width.
#pragma once

#include <ATen/ATen.h>

#include "smoe/model/document_lengths.h"

namespace smoe {

// Softmax(q k^T / sqrt(K)) v over the earlier tokens of the same document, [B, H, T, K], for q, k, v of that
// shape. `lengths`: one list a row, which sums to T. Differentiable.
at::Tensor document_attention(const at::Tensor& q_BHTK, const at::Tensor& k_BHTK, const at::Tensor& v_BHTK,
                              const DocumentLengths& lengths);

}  // namespace smoe
