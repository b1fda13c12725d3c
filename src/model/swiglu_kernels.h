// The element-wise parts of the routed experts on the CPU, each one pass over memory that the caller's
// cache holds. On x86 with GCC the loops are compiled for several instruction sets and chosen at load.
#pragma once

#include <cstdint>

namespace smoe {

// gate <- mask * silu(gate) * up.
void swiglu_forward(float* gate, const float* up, int64_t count, float mask);
void swiglu_forward(double* gate, const double* up, int64_t count, double mask);

// hidden <- mask * silu(gate) * up.
void swiglu_hidden(const float* gate, const float* up, float* hidden, int64_t count, float mask);
void swiglu_hidden(const double* gate, const double* up, double* hidden, int64_t count, double mask);

// From the gradient of the masked hidden state in `hidden`:
//   gate_gradient, up_gradient <- gradients of gate and up; they may be `gate` and `up` themselves
//   hidden                     <- the masked hidden state mask * silu(gate) * up
// Returns the gradient of the mask: the sum of gradient * silu(gate) * up.
double swiglu_backward(const float* gate, const float* up, float* hidden, float* gate_gradient,
                       float* up_gradient, int64_t count, float mask);
double swiglu_backward(const double* gate, const double* up, double* hidden, double* gate_gradient,
                       double* up_gradient, int64_t count, double mask);

// target <- target + source.
void add_into(float* target, const float* source, int64_t count);
void add_into(double* target, const double* source, int64_t count);

}  // namespace smoe
