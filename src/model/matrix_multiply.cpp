#include "matrix_multiply.h"

#include <ATen/ATen.h>

// The BLAS that LibTorch was built with, if it exports the standard Fortran names (the x86-64 builds do).
extern "C" {
__attribute__((weak)) void sgemm_(const char* transpose_a, const char* transpose_b, const int* m,
                                  const int* n, const int* k, const float* alpha, const float* a,
                                  const int* lda, const float* b, const int* ldb, const float* beta, float* c,
                                  const int* ldc);
__attribute__((weak)) void dgemm_(const char* transpose_a, const char* transpose_b, const int* m,
                                  const int* n, const int* k, const double* alpha, const double* a,
                                  const int* lda, const double* b, const int* ldb, const double* beta,
                                  double* c, const int* ldc);
}

namespace smoe {
namespace {

template <class Scalar>
at::Tensor tensor_of(MatrixView<const Scalar> matrix) {
  const at::Tensor stored = at::from_blob(const_cast<Scalar*>(matrix.data), {matrix.rows, matrix.columns},
                                          {matrix.row_stride(), 1}, c10::CppTypeToScalarType<Scalar>::value);
  return matrix.transposed ? stored.t() : stored;
}

template <class Scalar, class Blas>
void multiply_with(Blas blas, MatrixView<const Scalar> left, MatrixView<const Scalar> right, Scalar beta,
                   MatrixView<Scalar> product) {
  if (blas == nullptr) {
    at::Tensor out = tensor_of(as_const(product));
    at::addmm_out(out, out, tensor_of(left), tensor_of(right), beta, 1);
    return;
  }
  // A row-major matrix is its own transpose in Fortran's order: C' = B' * A'.
  const auto m = static_cast<int>(product.columns);
  const auto n = static_cast<int>(product.rows);
  const auto k = static_cast<int>(left.transposed ? left.rows : left.columns);
  const auto stride_left = static_cast<int>(left.row_stride());
  const auto stride_right = static_cast<int>(right.row_stride());
  const auto stride_product = static_cast<int>(product.row_stride());
  const Scalar one = 1;
  blas(right.transposed ? "T" : "N", left.transposed ? "T" : "N", &m, &n, &k, &one, right.data, &stride_right,
       left.data, &stride_left, &beta, product.data, &stride_product);
}

}  // namespace

void multiply(MatrixView<const float> left, MatrixView<const float> right, float beta,
              MatrixView<float> product) {
  multiply_with<float>(&sgemm_, left, right, beta, product);
}
void multiply(MatrixView<const double> left, MatrixView<const double> right, double beta,
              MatrixView<double> product) {
  multiply_with<double>(&dgemm_, left, right, beta, product);
}

}  // namespace smoe
