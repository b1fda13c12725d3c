// Matrix products on bare pointers for loops that make many small ones inside a parallel region, where the
// cost of building tensors and dispatching operators for each would show.
#pragma once

#include <cstdint>

namespace smoe {

// A row-major matrix of rows x columns as it lies in memory, used transposed if `transposed`.
template <class Scalar>
struct MatrixView {
  Scalar* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  bool transposed = false;
  int64_t stride = 0;  // from a row to the next; 0: `columns`, rows without gaps

  MatrixView transpose() const { return {data, rows, columns, !transposed, stride}; }
  int64_t row_stride() const { return stride == 0 ? columns : stride; }
};

template <class Scalar>
MatrixView<const Scalar> as_const(const MatrixView<Scalar>& matrix) {
  return {matrix.data, matrix.rows, matrix.columns, matrix.transposed, matrix.stride};
}

// product <- left * right + beta * product, with beta 0 (what was there is not read) or 1. `product` must not
// be transposed. Runs on the calling thread alone when that is inside a parallel region.
void multiply(MatrixView<const float> left, MatrixView<const float> right, float beta,
              MatrixView<float> product);
void multiply(MatrixView<const double> left, MatrixView<const double> right, double beta,
              MatrixView<double> product);

}  // namespace smoe
