// Large matrix products by row shares: every thread runs its own single-threaded product. Several products
// and the loops between them need one parallel region then, and a BLAS that divides each product by itself
// packs parts of the operands more than once.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "matrix_multiply.h"

namespace smoe {

// Rows [begin, end) of a matrix, after its transposition if it is transposed.
template <class Scalar>
MatrixView<Scalar> row_range(const MatrixView<Scalar>& matrix, int64_t begin, int64_t end) {
  const int64_t stride = matrix.row_stride();
  if (matrix.transposed) return {matrix.data + begin, matrix.rows, end - begin, true, stride};
  return {matrix.data + begin * stride, end - begin, matrix.columns, false, stride};
}

// Contiguous matrices of two dimensions.
template <class Scalar>
MatrixView<const Scalar> matrix_of(const at::Tensor& matrix) {
  return {matrix.const_data_ptr<Scalar>(), matrix.size(0), matrix.size(1)};
}
template <class Scalar>
MatrixView<Scalar> mutable_matrix_of(const at::Tensor& matrix) {
  return {matrix.mutable_data_ptr<Scalar>(), matrix.size(0), matrix.size(1)};
}

// Calls body(begin, end) on shares of [0, num_rows), one a thread if `multiply_adds` are worth it. Shares
// begin at multiples of 16 rows, the height of BLAS kernels.
template <class Body>
void for_each_row_share(int64_t num_rows, int64_t multiply_adds, const Body& body) {
  constexpr int64_t kMinThreadWork = int64_t{1} << 20;
  constexpr int64_t kAlignment = 16;
  const int64_t num_shares = std::clamp<int64_t>(multiply_adds / kMinThreadWork, 1, at::get_num_threads());
  const auto border = [&](int64_t share) {
    return share == num_shares ? num_rows : num_rows * share / num_shares / kAlignment * kAlignment;
  };
  at::parallel_for(0, num_shares, 1, [&](int64_t first, int64_t last) {
    for (int64_t share = first; share < last; ++share) {
      if (border(share) < border(share + 1)) body(border(share), border(share + 1));
    }
  });
}

// product <- left * right + beta * product by row shares.
template <class Scalar>
void multiply_by_row_shares(const MatrixView<const Scalar>& left, const MatrixView<const Scalar>& right,
                            Scalar beta, const MatrixView<Scalar>& product) {
  const int64_t depth = left.transposed ? left.rows : left.columns;
  for_each_row_share(product.rows, product.rows * product.columns * depth, [&](int64_t begin, int64_t end) {
    multiply(row_range(left, begin, end), right, beta, row_range(product, begin, end));
  });
}

}  // namespace smoe
