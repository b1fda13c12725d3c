// The lookup of token embeddings.
//
// Shape legend: V vocabulary, D model width.
#pragma once

#include <ATen/ATen.h>

namespace smoe {

// Rows `tokens` (int64, any shape) of the table, [..., D]. Differentiable once in the table. A frequent token
// adds up hundreds of gradients, which is done in float32 where the table is bfloat16; its gradient is
// float32 then.
at::Tensor embed_tokens(const at::Tensor& table_VD, const at::Tensor& tokens);

}  // namespace smoe
