// Matrices of an expert in any encoding: products with one vector straight from the encoded values, and their
// float32 values for everything else.
#pragma once

#include <cstdint>

#include "smoe/model/expert_provider.h"

namespace smoe {

struct EncodedMatrix {
  ExpertEncoding encoding = ExpertEncoding::kFloat32;
  const void* data = nullptr;        // row-major
  const float* row_scale = nullptr;  // int8 only
  int64_t rows = 0;
  int64_t columns = 0;
};

EncodedMatrix gate_matrix(const ExpertView& view, const ExpertShape& shape);
EncodedMatrix up_matrix(const ExpertView& view, const ExpertShape& shape);
EncodedMatrix down_matrix(const ExpertView& view, const ExpertShape& shape);

// product[r] = sum over c of matrix[r, c] * vector[c], plus what was there if `accumulate`. Each sum runs in
// an order that depends on the number of columns only, so that encodings of the same values give the same
// bits.
void multiply_vector(const EncodedMatrix& matrix, const float* vector, float* product, bool accumulate);

// The rows [begin, begin + count).
EncodedMatrix rows_of(const EncodedMatrix& matrix, int64_t begin, int64_t count);

// sums[r] += over all terms, sum over c of matrix[r, c] * vector[c]. The matrices have as many rows as
// `sums`.
struct MatrixVector {
  EncodedMatrix matrix;
  const float* vector = nullptr;
};
void add_products(const MatrixVector* terms, int64_t num_terms, float* sums);

// result[c] = sum over r of weights[r] * rows[r * columns + c].
void sum_weighted_rows(const float* rows, const float* weights, int64_t num_rows, int64_t columns,
                       float* result);

// Bytes of one value.
int64_t encoded_value_bytes(ExpertEncoding encoding);

// The float32 values, row-major.
void decode_matrix(const EncodedMatrix& matrix, float* values);

}  // namespace smoe
