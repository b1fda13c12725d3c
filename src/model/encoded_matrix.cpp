#include "encoded_matrix.h"

#include <cstddef>
#include <cstring>

#include "smoe/core/vector_clones.h"

namespace smoe {
namespace {

// Sixteen partial sums a row whatever the registers of the machine: the compiler cannot reorder them.
constexpr int64_t kLanes = 16;
// Sums of a row that run side by side.
constexpr int64_t kUnroll = 4;
// Rows whose sums over several matrices wait in the first-level cache.
constexpr int64_t kWaitingRows = 32;

using Floats = float __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));
using Integers = int32_t __attribute__((vector_size(64)));
using HalfWords = uint16_t __attribute__((vector_size(32)));
using HalfIntegers = int16_t __attribute__((vector_size(32)));
using Bytes = int8_t __attribute__((vector_size(16)));

// Vectors go in and out by reference: by value, their calling convention would depend on the target.
SMOE_INLINE void load_lanes(const float* source, float, Floats& values) {
  std::memcpy(&values, source, sizeof(values));
}
SMOE_INLINE void load_lanes(const uint16_t* source, float, Floats& values) {
  HalfWords halves;
  std::memcpy(&halves, source, sizeof(halves));
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&values, &words, sizeof(values));
}
SMOE_INLINE void load_lanes(const int8_t* source, float scale, Floats& values) {
  Bytes bytes;
  std::memcpy(&bytes, source, sizeof(bytes));
  // In two steps: GCC 12 widens four times only element by element, at a third of the speed.
  const HalfIntegers halves = __builtin_convertvector(bytes, HalfIntegers);
  values = __builtin_convertvector(__builtin_convertvector(halves, Integers), Floats) * scale;
}

template <class Element>
SMOE_INLINE void load_tail(const Element* source, int64_t count, float scale, Floats& values) {
  Element padded[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = source[i];
  load_lanes(padded, scale, values);
}

SMOE_INLINE float sum_of_lanes(const Floats& lanes) {
  float sums[kLanes];
  std::memcpy(sums, &lanes, sizeof(sums));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

// Lanes of the product of one row with a vector. Rows are read one after the other: several side by side, a
// kilobyte or two apart, are streams too short for the processor to read ahead, and ran at a fifth of the
// speed in bf16.
template <class Element>
SMOE_INLINE void row_lanes(const Element* row, float scale, int64_t columns, const float* vector,
                           Floats& lanes) {
  Floats sums[kUnroll] = {};
  int64_t c = 0;
  for (; c + kUnroll * kLanes <= columns; c += kUnroll * kLanes) {
    for (int64_t i = 0; i < kUnroll; ++i) {
      Floats input, values;
      load_lanes(vector + c + i * kLanes, 1.0F, input);
      load_lanes(row + c + i * kLanes, scale, values);
      sums[i] += values * input;
    }
  }
  for (; c < columns; c += kLanes) {
    Floats input, values;
    if (c + kLanes <= columns) {
      load_lanes(vector + c, 1.0F, input);
      load_lanes(row + c, scale, values);
    } else {
      load_tail(vector + c, columns - c, 1.0F, input);
      load_tail(row + c, columns - c, scale, values);
    }
    sums[0] += values * input;
  }
  lanes = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <class Element>
SMOE_INLINE void multiply_all(const EncodedMatrix& matrix, const float* vector, float* product,
                              bool accumulate) {
  const auto* data = static_cast<const Element*>(matrix.data);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const float scale = matrix.row_scale == nullptr ? 1.0F : matrix.row_scale[row];
    Floats lanes;
    row_lanes(data + row * matrix.columns, scale, matrix.columns, vector, lanes);
    const float sum = sum_of_lanes(lanes);
    product[row] = accumulate ? product[row] + sum : sum;
  }
}

// Rows [begin, end) of a term, added to lanes that wait for the other terms.
template <class Element>
SMOE_INLINE void add_rows(const MatrixVector& term, int64_t begin, int64_t end, Floats* waiting) {
  const EncodedMatrix& matrix = term.matrix;
  const auto* data = static_cast<const Element*>(matrix.data);
  for (int64_t row = begin; row < end; ++row) {
    const float scale = matrix.row_scale == nullptr ? 1.0F : matrix.row_scale[row];
    Floats lanes;
    row_lanes(data + row * matrix.columns, scale, matrix.columns, term.vector, lanes);
    waiting[row - begin] += lanes;
  }
}

SMOE_INLINE void add_term(const MatrixVector& term, int64_t begin, int64_t end, Floats* waiting) {
  switch (term.matrix.encoding) {
    case ExpertEncoding::kFloat32:
      return add_rows<float>(term, begin, end, waiting);
    case ExpertEncoding::kBfloat16:
      return add_rows<uint16_t>(term, begin, end, waiting);
    case ExpertEncoding::kInt8:
      return add_rows<int8_t>(term, begin, end, waiting);
  }
}

template <class Element>
SMOE_INLINE void decode_all(const EncodedMatrix& matrix, float* values) {
  const auto* data = static_cast<const Element*>(matrix.data);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const float scale = matrix.row_scale == nullptr ? 1.0F : matrix.row_scale[row];
    const Element* source = data + row * matrix.columns;
    float* target = values + row * matrix.columns;
    Floats lanes;
    int64_t c = 0;
    for (; c + kLanes <= matrix.columns; c += kLanes) {
      load_lanes(source + c, scale, lanes);
      std::memcpy(target + c, &lanes, sizeof(lanes));
    }
    if (c < matrix.columns) {
      load_tail(source + c, matrix.columns - c, scale, lanes);
      std::memcpy(target + c, &lanes, static_cast<size_t>(matrix.columns - c) * sizeof(float));
    }
  }
}

}  // namespace

EncodedMatrix gate_matrix(const ExpertView& view, const ExpertShape& shape) {
  return {view.encoding, view.gate_hD, view.gate_scale_h, shape.expert_dim, shape.dim};
}
EncodedMatrix up_matrix(const ExpertView& view, const ExpertShape& shape) {
  return {view.encoding, view.up_hD, view.up_scale_h, shape.expert_dim, shape.dim};
}
EncodedMatrix down_matrix(const ExpertView& view, const ExpertShape& shape) {
  return {view.encoding, view.down_Dh, view.down_scale_D, shape.dim, shape.expert_dim};
}

SMOE_VECTOR_CLONES void multiply_vector(const EncodedMatrix& matrix, const float* vector, float* product,
                                        bool accumulate) {
  switch (matrix.encoding) {
    case ExpertEncoding::kFloat32:
      return multiply_all<float>(matrix, vector, product, accumulate);
    case ExpertEncoding::kBfloat16:
      return multiply_all<uint16_t>(matrix, vector, product, accumulate);
    case ExpertEncoding::kInt8:
      return multiply_all<int8_t>(matrix, vector, product, accumulate);
  }
}

int64_t encoded_value_bytes(ExpertEncoding encoding) {
  switch (encoding) {
    case ExpertEncoding::kFloat32:
      return 4;
    case ExpertEncoding::kBfloat16:
      return 2;
    case ExpertEncoding::kInt8:
      return 1;
  }
  return 0;
}

EncodedMatrix rows_of(const EncodedMatrix& matrix, int64_t begin, int64_t count) {
  const int64_t offset = begin * matrix.columns * encoded_value_bytes(matrix.encoding);
  return {matrix.encoding, static_cast<const std::byte*>(matrix.data) + offset,
          matrix.row_scale == nullptr ? nullptr : matrix.row_scale + begin, count, matrix.columns};
}

SMOE_VECTOR_CLONES void add_products(const MatrixVector* terms, int64_t num_terms, float* sums) {
  const int64_t rows = num_terms == 0 ? 0 : terms[0].matrix.rows;
  for (int64_t begin = 0; begin < rows; begin += kWaitingRows) {
    const int64_t end = begin + kWaitingRows < rows ? begin + kWaitingRows : rows;
    Floats waiting[kWaitingRows] = {};
    for (int64_t term = 0; term < num_terms; ++term) add_term(terms[term], begin, end, waiting);
    for (int64_t row = begin; row < end; ++row) sums[row] += sum_of_lanes(waiting[row - begin]);
  }
}

SMOE_VECTOR_CLONES void sum_weighted_rows(const float* rows, const float* weights, int64_t num_rows,
                                          int64_t columns, float* result) {
  for (int64_t c = 0; c < columns; ++c) result[c] = 0.0F;
  for (int64_t r = 0; r < num_rows; ++r) {
    const float weight = weights[r];
    const float* row = rows + r * columns;
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) result[c] += weight * row[c];
  }
}

SMOE_VECTOR_CLONES void decode_matrix(const EncodedMatrix& matrix, float* values) {
  switch (matrix.encoding) {
    case ExpertEncoding::kFloat32:
      return decode_all<float>(matrix, values);
    case ExpertEncoding::kBfloat16:
      return decode_all<uint16_t>(matrix, values);
    case ExpertEncoding::kInt8:
      return decode_all<int8_t>(matrix, values);
  }
}

}  // namespace smoe
