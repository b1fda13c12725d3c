// The element-wise parts of causal attention on the CPU, on one row of scores at a time. On x86 with GCC the
// loops are compiled for several instruction sets and chosen at load.
#pragma once

#include <cstdint>

namespace smoe {

// The largest of `count` > 0 values.
float row_maximum(const float* values, int64_t count);
double row_maximum(const double* values, int64_t count);

// values <- exp(values - shift); returns their sum.
float exponentiate_row(float* values, int64_t count, float shift);
double exponentiate_row(double* values, int64_t count, double shift);

// From scores and the gradient of the probabilities exp(score - shift), in place:
//   scores   <- probabilities
//   gradient <- gradient of the scores, probability * (gradient - mean)
// with `mean` the sum over the whole row of probability * gradient.
void softmax_backward_row(float* scores, float* gradient, int64_t count, float shift, float mean);
void softmax_backward_row(double* scores, double* gradient, int64_t count, double shift, double mean);

float dot_product(const float* left, const float* right, int64_t count);
double dot_product(const double* left, const double* right, int64_t count);

// values <- factor * values.
void scale_row(float* values, int64_t count, float factor);
void scale_row(double* values, int64_t count, double factor);

// target <- factor * source.
void scale_into(const float* source, float* target, int64_t count, float factor);
void scale_into(const double* source, double* target, int64_t count, double factor);

// The pairs (i, i + half) of a head rotated by their angles, and scaled:
//   target[i]        = scale * (source[i] * cos[i] - source[i + half] * sin[i])
//   target[i + half] = scale * (source[i + half] * cos[i] + source[i] * sin[i])
// `turn` is 1, or -1 for the inverse. `target` may be `source`.
void rotate_head(const float* source, float* target, const float* cos, const float* sin, int64_t half,
                 float scale, float turn);
void rotate_head(const double* source, double* target, const double* cos, const double* sin, int64_t half,
                 double scale, double turn);

}  // namespace smoe
