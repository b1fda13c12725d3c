#include "softmax_kernels.h"

#include "smoe/core/vector_clones.h"
#include "smoe/core/vector_math.h"

namespace smoe {
namespace {

template <class Scalar>
SMOE_INLINE Scalar maximum_loop(const Scalar* values, int64_t count) {
  Scalar maximum = values[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < count; ++i) maximum = values[i] > maximum ? values[i] : maximum;
  return maximum;
}

template <class Scalar>
SMOE_INLINE Scalar exponentiate_loop(Scalar* values, int64_t count, Scalar shift) {
  Scalar sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    values[i] = bounded_exponential(values[i] - shift);
    sum += values[i];
  }
  return sum;
}

template <class Scalar>
SMOE_INLINE void softmax_backward_loop(Scalar* scores, Scalar* gradient, int64_t count, Scalar shift,
                                       Scalar mean) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const Scalar probability = bounded_exponential(scores[i] - shift);
    gradient[i] = probability * (gradient[i] - mean);
    scores[i] = probability;
  }
}

template <class Scalar>
SMOE_INLINE Scalar dot_loop(const Scalar* left, const Scalar* right, int64_t count) {
  Scalar sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += left[i] * right[i];
  return sum;
}

template <class Scalar>
SMOE_INLINE void scale_loop(Scalar* values, int64_t count, Scalar factor) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

template <class Scalar>
SMOE_INLINE void scale_into_loop(const Scalar* source, Scalar* target, int64_t count, Scalar factor) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) target[i] = factor * source[i];
}

template <class Scalar>
SMOE_INLINE void rotate_loop(const Scalar* source, Scalar* target, const Scalar* cos, const Scalar* sin,
                             int64_t half, Scalar scale, Scalar turn) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const Scalar first = scale * source[i];
    const Scalar second = scale * source[i + half];
    target[i] = first * cos[i] - turn * second * sin[i];
    target[i + half] = second * cos[i] + turn * first * sin[i];
  }
}

}  // namespace

SMOE_VECTOR_CLONES float row_maximum(const float* values, int64_t count) {
  return maximum_loop(values, count);
}
SMOE_VECTOR_CLONES double row_maximum(const double* values, int64_t count) {
  return maximum_loop(values, count);
}
SMOE_VECTOR_CLONES float exponentiate_row(float* values, int64_t count, float shift) {
  return exponentiate_loop(values, count, shift);
}
SMOE_VECTOR_CLONES double exponentiate_row(double* values, int64_t count, double shift) {
  return exponentiate_loop(values, count, shift);
}
SMOE_VECTOR_CLONES void softmax_backward_row(float* scores, float* gradient, int64_t count, float shift,
                                             float mean) {
  softmax_backward_loop(scores, gradient, count, shift, mean);
}
SMOE_VECTOR_CLONES void softmax_backward_row(double* scores, double* gradient, int64_t count, double shift,
                                             double mean) {
  softmax_backward_loop(scores, gradient, count, shift, mean);
}
SMOE_VECTOR_CLONES float dot_product(const float* left, const float* right, int64_t count) {
  return dot_loop(left, right, count);
}
SMOE_VECTOR_CLONES double dot_product(const double* left, const double* right, int64_t count) {
  return dot_loop(left, right, count);
}
SMOE_VECTOR_CLONES void scale_row(float* values, int64_t count, float factor) {
  scale_loop(values, count, factor);
}
SMOE_VECTOR_CLONES void scale_row(double* values, int64_t count, double factor) {
  scale_loop(values, count, factor);
}
SMOE_VECTOR_CLONES void scale_into(const float* source, float* target, int64_t count, float factor) {
  scale_into_loop(source, target, count, factor);
}
SMOE_VECTOR_CLONES void scale_into(const double* source, double* target, int64_t count, double factor) {
  scale_into_loop(source, target, count, factor);
}
SMOE_VECTOR_CLONES void rotate_head(const float* source, float* target, const float* cos, const float* sin,
                                    int64_t half, float scale, float turn) {
  rotate_loop(source, target, cos, sin, half, scale, turn);
}
SMOE_VECTOR_CLONES void rotate_head(const double* source, double* target, const double* cos,
                                    const double* sin, int64_t half, double scale, double turn) {
  rotate_loop(source, target, cos, sin, half, scale, turn);
}

}  // namespace smoe
