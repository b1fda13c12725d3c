// Rows of RMSNorm on the CPU. On x86 with GCC the loops are compiled for several instruction sets and chosen
// at load.
#pragma once

#include <cstdint>

namespace smoe {

// sum <- h + branch (a null branch: sum is not written and h is normed); normed <- gain * factor * sum with
// factor = 1 / sqrt(mean(sum^2) + epsilon), which is returned.
float norm_forward_row(const float* h, const float* branch, const float* gain, float* sum, float* normed,
                       int64_t count, float epsilon);
double norm_forward_row(const double* h, const double* branch, const double* gain, double* sum,
                        double* normed, int64_t count, double epsilon);

// From the gradients of the sum (null: zeros) and of the normed row:
//   result        <- sum_gradient + the gradient through the norm
//   gain_gradient <- gain_gradient + normed_gradient * factor * sum
// `result` may be `sum_gradient`.
void norm_backward_row(const float* sum, const float* gain, const float* sum_gradient,
                       const float* normed_gradient, float* result, float* gain_gradient, int64_t count,
                       float factor);
void norm_backward_row(const double* sum, const double* gain, const double* sum_gradient,
                       const double* normed_gradient, double* result, double* gain_gradient, int64_t count,
                       double factor);

}  // namespace smoe
