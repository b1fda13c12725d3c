#include "swiglu_kernels.h"

#include <algorithm>

#include "smoe/core/vector_clones.h"
#include "smoe/core/vector_math.h"

namespace smoe {
namespace {

template <class Scalar>
SMOE_INLINE void forward_loop(Scalar* gate, const Scalar* up, int64_t count, Scalar mask) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    gate[i] = mask * up[i] * gate[i] / (Scalar(1) + exponential(-gate[i]));
  }
}

template <class Scalar>
SMOE_INLINE void hidden_loop(const Scalar* gate, const Scalar* up, Scalar* hidden, int64_t count,
                             Scalar mask) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    hidden[i] = mask * up[i] * gate[i] / (Scalar(1) + exponential(-gate[i]));
  }
}

template <class Scalar>
SMOE_INLINE Scalar backward_loop(const Scalar* gate, const Scalar* up, Scalar* hidden, Scalar* gate_gradient,
                                 Scalar* up_gradient, int64_t count, Scalar mask) {
  Scalar mask_gradient = 0;
#pragma omp simd reduction(+ : mask_gradient)
  for (int64_t i = 0; i < count; ++i) {
    const Scalar sigmoid = Scalar(1) / (Scalar(1) + exponential(-gate[i]));
    const Scalar silu = gate[i] * sigmoid;
    const Scalar silu_slope = sigmoid + silu * (Scalar(1) - sigmoid);
    const Scalar value = silu * up[i];
    mask_gradient += hidden[i] * value;
    const Scalar gradient = mask * hidden[i];
    gate_gradient[i] = gradient * up[i] * silu_slope;
    up_gradient[i] = gradient * silu;
    hidden[i] = mask * value;
  }
  return mask_gradient;
}

// The sum runs in the tensor's own type over blocks, and in double over the blocks.
template <class Scalar>
SMOE_INLINE double backward_blocks(const Scalar* gate, const Scalar* up, Scalar* hidden,
                                   Scalar* gate_gradient, Scalar* up_gradient, int64_t count, Scalar mask) {
  constexpr int64_t kBlock = 1024;
  double mask_gradient = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    mask_gradient +=
        static_cast<double>(backward_loop(gate + begin, up + begin, hidden + begin, gate_gradient + begin,
                                          up_gradient + begin, std::min(kBlock, count - begin), mask));
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
SMOE_VECTOR_CLONES void swiglu_hidden(const float* gate, const float* up, float* hidden, int64_t count,
                                      float mask) {
  hidden_loop(gate, up, hidden, count, mask);
}
SMOE_VECTOR_CLONES void swiglu_hidden(const double* gate, const double* up, double* hidden, int64_t count,
                                      double mask) {
  hidden_loop(gate, up, hidden, count, mask);
}
SMOE_VECTOR_CLONES double swiglu_backward(const float* gate, const float* up, float* hidden,
                                          float* gate_gradient, float* up_gradient, int64_t count,
                                          float mask) {
  return backward_blocks(gate, up, hidden, gate_gradient, up_gradient, count, mask);
}
SMOE_VECTOR_CLONES double swiglu_backward(const double* gate, const double* up, double* hidden,
                                          double* gate_gradient, double* up_gradient, int64_t count,
                                          double mask) {
  return backward_blocks(gate, up, hidden, gate_gradient, up_gradient, count, mask);
}
SMOE_VECTOR_CLONES void add_into(float* target, const float* source, int64_t count) {
  add_loop(target, source, count);
}
SMOE_VECTOR_CLONES void add_into(double* target, const double* source, int64_t count) {
  add_loop(target, source, count);
}

}  // namespace smoe
