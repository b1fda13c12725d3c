#include "document_attention.h"

#include <numeric>

#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr int64_t kTokenDim = 2;

// The pieces [1, H, length, K] of all documents, row after row. Splitting, unlike narrowing, has a backward
// that touches every gradient once.
std::vector<at::Tensor> split_documents(const at::Tensor& x_BHTK, const DocumentLengths& lengths) {
  std::vector<at::Tensor> pieces;
  const std::vector<at::Tensor> rows = x_BHTK.split(1, 0);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (at::Tensor& piece : rows[row].split_with_sizes(lengths[row], kTokenDim)) {
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

}  // namespace

at::Tensor document_attention(const at::Tensor& q_BHTK, const at::Tensor& k_BHTK, const at::Tensor& v_BHTK,
                              const DocumentLengths& lengths) {
  SMOE_ASSERT(std::ssize(lengths) == q_BHTK.size(0));
  for (const std::vector<int64_t>& row : lengths) {
    SMOE_ASSERT(std::accumulate(row.begin(), row.end(), int64_t{0}) == q_BHTK.size(kTokenDim));
  }
  const std::vector<at::Tensor> q = split_documents(q_BHTK, lengths);
  const std::vector<at::Tensor> k = split_documents(k_BHTK, lengths);
  const std::vector<at::Tensor> v = split_documents(v_BHTK, lengths);
  std::vector<at::Tensor> rows;
  size_t piece = 0;
  for (const std::vector<int64_t>& row : lengths) {
    std::vector<at::Tensor> mixed;
    for (size_t document = 0; document < row.size(); ++document, ++piece) {
      mixed.push_back(at::scaled_dot_product_attention(q[piece], k[piece], v[piece], {}, /*dropout_p=*/0.0,
                                                       /*is_causal=*/true));
    }
    rows.push_back(at::cat(mixed, kTokenDim));
  }
  return at::cat(rows, 0);
}

DocumentLengths document_lengths(const at::Tensor& documents_BT) {
  SMOE_ASSERT(documents_BT.dim() == 2 && documents_BT.scalar_type() == at::kLong);
  const at::Tensor cpu_BT = documents_BT.cpu().contiguous();
  const int64_t num_tokens = cpu_BT.size(1);
  const int64_t* ids = cpu_BT.const_data_ptr<int64_t>();
  DocumentLengths lengths(static_cast<size_t>(cpu_BT.size(0)));
  for (std::vector<int64_t>& row : lengths) {
    for (int64_t begin = 0, end = 0; begin < num_tokens; begin = end) {
      while (end < num_tokens && ids[end] == ids[begin]) ++end;
      row.push_back(end - begin);
    }
    ids += num_tokens;
  }
  return lengths;
}

}  // namespace smoe
