#include "swiglu_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "vector_clones.h"

namespace smoe {
namespace {

// exp(x) = 2^n * exp(r) with |r| <= log(2)/2 and a polynomial for exp(r) (Cephes' coefficients), without
// branches or calls, so that the loops around it become vector code. Relative error below 2e-7; x is
// cut off where the result would leave the normal range; a NaN stays a NaN.
SMOE_INLINE float exponential(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves round(value) in the low bits
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

// float64 is for checking gradients, where the last digits matter more than speed.
SMOE_INLINE double exponential(double x) { return std::exp(x); }

template <class Scalar>
SMOE_INLINE void forward_loop(Scalar* gate, const Scalar* up, int64_t count, Scalar mask) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    gate[i] = mask * up[i] * gate[i] / (Scalar(1) + exponential(-gate[i]));
  }
}

template <class Scalar>
SMOE_INLINE Scalar backward_loop(Scalar* gate, Scalar* up, Scalar* hidden, int64_t count, Scalar mask) {
  Scalar mask_gradient = 0;
#pragma omp simd reduction(+ : mask_gradient)
  for (int64_t i = 0; i < count; ++i) {
    const Scalar sigmoid = Scalar(1) / (Scalar(1) + exponential(-gate[i]));
    const Scalar silu = gate[i] * sigmoid;
    const Scalar silu_slope = sigmoid + silu * (Scalar(1) - sigmoid);
    const Scalar value = silu * up[i];
    mask_gradient += hidden[i] * value;
    const Scalar gradient = mask * hidden[i];
    gate[i] = gradient * up[i] * silu_slope;
    up[i] = gradient * silu;
    hidden[i] = mask * value;
  }
  return mask_gradient;
}

// The sum runs in the tensor's own type over blocks, and in double over the blocks.
template <class Scalar>
SMOE_INLINE double backward_blocks(Scalar* gate, Scalar* up, Scalar* hidden, int64_t count, Scalar mask) {
  constexpr int64_t kBlock = 1024;
  double mask_gradient = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    mask_gradient += static_cast<double>(
        backward_loop(gate + begin, up + begin, hidden + begin, std::min(kBlock, count - begin), mask));
  }
  return mask_gradient;
}

template <class Scalar>
SMOE_INLINE void add_loop(Scalar* target, const Scalar* source, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    target[i] += source[i];
  }
}

}  // namespace

SMOE_VECTOR_CLONES void swiglu_forward(float* gate, const float* up, int64_t count, float mask) {
  forward_loop(gate, up, count, mask);
}
SMOE_VECTOR_CLONES void swiglu_forward(double* gate, const double* up, int64_t count, double mask) {
  forward_loop(gate, up, count, mask);
}
SMOE_VECTOR_CLONES double swiglu_backward(float* gate, float* up, float* hidden, int64_t count, float mask) {
  return backward_blocks(gate, up, hidden, count, mask);
}
SMOE_VECTOR_CLONES double swiglu_backward(double* gate, double* up, double* hidden, int64_t count,
                                          double mask) {
  return backward_blocks(gate, up, hidden, count, mask);
}
SMOE_VECTOR_CLONES void add_into(float* target, const float* source, int64_t count) {
  add_loop(target, source, count);
}
SMOE_VECTOR_CLONES void add_into(double* target, const double* source, int64_t count) {
  add_loop(target, source, count);
}

}  // namespace smoe
