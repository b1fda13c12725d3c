// Causal attention inside the documents of packed rows on a GPU: all documents of a batch in one call of
// LibTorch's flash kernels, which take rows of different lengths by their offsets. No mask exists, and the
// host waits for nothing.
//
// Shape legend: B rows, T tokens, H query heads, G key/value heads, K head width, S documents, N = B*T
// tokens.
#pragma once

#include <ATen/ATen.h>

#include "smoe/model/document_lengths.h"

namespace smoe {

// Where the documents of a batch lie in its flattened tokens, for the host and for the device.
struct PackedDocuments {
  DocumentLengths lengths;
  at::Tensor offsets;      // int32 [S + 1] on the device: first token of each document, and N
  int64_t max_length = 0;  // of a document
};

PackedDocuments pack_documents(DocumentLengths lengths, at::Device device);

// Softmax(q k^T / sqrt(K)) v over the earlier tokens of the same document, [B, T, H, K], for q [B, T, H, K]
// and k, v [B, T, G, K]; G divides H. bfloat16 by flash attention (K a multiple of 8, at most 256), float32
// by the memory-efficient kernel. Differentiable once. CUDA only.
at::Tensor packed_attention(const at::Tensor& q_BTHK, const at::Tensor& k_BTGK, const at::Tensor& v_BTGK,
                            const PackedDocuments& documents);

// The same on any device, document by document: what the tests compare with. It reads the offsets back.
at::Tensor packed_attention_reference(const at::Tensor& q_BTHK, const at::Tensor& k_BTGK,
                                      const at::Tensor& v_BTGK, const PackedDocuments& documents);

}  // namespace smoe
