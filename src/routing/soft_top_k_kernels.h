// The loops behind soft_top_k_forward_rows and soft_top_k_backward_rows on bare rows. On x86 with GCC they
// are compiled for several instruction sets and chosen at load.
//
// Rows are contiguous, `size` experts each; scores have no NaN and no +inf.
#pragma once

#include <cstdint>
#include <vector>

#include "smoe/routing/routing_config.h"

namespace smoe {

// lambda of the entropy kind. Returns the rows that it has left alone, because they have no finite shift (sum
// 0 or all that is allowed) or because their scores lie so far apart that exponentials underflow.
std::vector<int64_t> solve_entropy_rows(const float* scores, const double* sums, float* lambda,
                                        int64_t num_rows, int64_t size, double temperature);
std::vector<int64_t> solve_entropy_rows(const double* scores, const double* sums, double* lambda,
                                        int64_t num_rows, int64_t size, double temperature);

// Gradient of the scores from lambda and its gradient.
void soft_top_k_backward(const float* gradient, const float* lambda, float* scores_gradient, int64_t num_rows,
                         int64_t size, double temperature, SoftTopKKind kind);
void soft_top_k_backward(const double* gradient, const double* lambda, double* scores_gradient,
                         int64_t num_rows, int64_t size, double temperature, SoftTopKKind kind);

}  // namespace smoe
