#include "norm_kernels.h"

#include <cmath>

#include "smoe/core/vector_clones.h"

namespace smoe {
namespace {

template <class Scalar>
SMOE_INLINE Scalar forward_loop(const Scalar* h, const Scalar* branch, const Scalar* gain, Scalar* sum,
                                Scalar* normed, int64_t count, Scalar epsilon) {
  Scalar squares = 0;
  if (branch != nullptr) {
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < count; ++i) {
      const Scalar value = h[i] + branch[i];
      sum[i] = value;
      squares += value * value;
    }
    h = sum;
  } else {
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < count; ++i) squares += h[i] * h[i];
  }
  const Scalar factor = Scalar(1) / std::sqrt(squares / static_cast<Scalar>(count) + epsilon);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) normed[i] = gain[i] * factor * h[i];
  return factor;
}

template <class Scalar>
SMOE_INLINE void backward_loop(const Scalar* sum, const Scalar* gain, const Scalar* sum_gradient,
                               const Scalar* normed_gradient, Scalar* result, Scalar* gain_gradient,
                               int64_t count, Scalar factor) {
  Scalar projection = 0;
#pragma omp simd reduction(+ : projection)
  for (int64_t i = 0; i < count; ++i) {
    const Scalar product = normed_gradient[i] * sum[i];
    gain_gradient[i] += product * factor;
    projection += product * gain[i];
  }
  const Scalar shrink = projection / static_cast<Scalar>(count) * factor * factor * factor;
  if (sum_gradient != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      result[i] = sum_gradient[i] + factor * gain[i] * normed_gradient[i] - shrink * sum[i];
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) result[i] = factor * gain[i] * normed_gradient[i] - shrink * sum[i];
  }
}

}  // namespace

SMOE_VECTOR_CLONES float norm_forward_row(const float* h, const float* branch, const float* gain, float* sum,
                                          float* normed, int64_t count, float epsilon) {
  return forward_loop(h, branch, gain, sum, normed, count, epsilon);
}
SMOE_VECTOR_CLONES double norm_forward_row(const double* h, const double* branch, const double* gain,
                                           double* sum, double* normed, int64_t count, double epsilon) {
  return forward_loop(h, branch, gain, sum, normed, count, epsilon);
}
SMOE_VECTOR_CLONES void norm_backward_row(const float* sum, const float* gain, const float* sum_gradient,
                                          const float* normed_gradient, float* result, float* gain_gradient,
                                          int64_t count, float factor) {
  backward_loop(sum, gain, sum_gradient, normed_gradient, result, gain_gradient, count, factor);
}
SMOE_VECTOR_CLONES void norm_backward_row(const double* sum, const double* gain, const double* sum_gradient,
                                          const double* normed_gradient, double* result,
                                          double* gain_gradient, int64_t count, double factor) {
  backward_loop(sum, gain, sum_gradient, normed_gradient, result, gain_gradient, count, factor);
}

}  // namespace smoe
