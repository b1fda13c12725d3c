// The element-wise parts of the routed experts on the CPU, each one pass over memory that the caller's
// cache holds. On x86 with GCC the loops are compiled for several instruction sets and chosen at load.
#pragma once

#include <cstdint>

namespace smoe {

// gate <- mask * silu(gate) * up.
void swiglu_forward(float* gate, const float* up, int64_t count, float mask);
void swiglu_forward(double* gate, const double* up, int64_t count, double mask);

// hidden <- silu(gate) * up.
void swiglu_hidden(const float* gate, const float* up, float* hidden, int64_t count);
void swiglu_hidden(const double* gate, const double* up, double* hidden, int64_t count);

// From the gradient of the hidden state in `hidden`: the gradients of gate and up, and in `hidden` the hidden
// state.
void swiglu_gradients(const float* gate, const float* up, float* hidden, float* gate_gradient,
                      float* up_gradient, int64_t count);
void swiglu_gradients(const double* gate, const double* up, double* hidden, double* gate_gradient,
                      double* up_gradient, int64_t count);

// From the gradient of the masked hidden state, `hidden`, in place:
//   gate   <- gradient of gate
//   up     <- gradient of up
//   hidden <- the masked hidden state mask * silu(gate) * up
// Returns the gradient of the mask: the sum of gradient * silu(gate) * up.
double swiglu_backward(float* gate, float* up, float* hidden, int64_t count, float mask);
double swiglu_backward(double* gate, double* up, double* hidden, int64_t count, double mask);

// target <- target + source.
void add_into(float* target, const float* source, int64_t count);
void add_into(double* target, const double* source, int64_t count);

}  // namespace smoe
