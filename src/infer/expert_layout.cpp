#include "smoe/infer/expert_layout.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr float kLargestInt8 = 127.0F;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

int64_t bytes_per_value(ExpertEncoding encoding) {
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

// One matrix of an expert on its way into a block.
struct MatrixSource {
  const float* values;
  int64_t rows;
  int64_t columns;
};

uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

void encode_bfloat16(const MatrixSource& source, std::byte* target) {
  for (int64_t i = 0; i < source.rows * source.columns; ++i) {
    const uint16_t value = to_bfloat16(source.values[i]);
    std::memcpy(target + 2 * i, &value, 2);
  }
}

void encode_int8(const MatrixSource& source, std::byte* target, std::byte* scales) {
  for (int64_t row = 0; row < source.rows; ++row) {
    const float* values = source.values + row * source.columns;
    float largest = 0;
    for (int64_t c = 0; c < source.columns; ++c) largest = std::max(largest, std::abs(values[c]));
    const float scale = largest / kLargestInt8;
    std::memcpy(scales + 4 * row, &scale, 4);
    for (int64_t c = 0; c < source.columns; ++c) {
      // The smallest subnormal numbers have a scale of 0.
      const float ratio = scale > 0 ? values[c] / scale : 0.0F;
      const auto value = static_cast<int8_t>(std::nearbyint(std::clamp(ratio, -kLargestInt8, kLargestInt8)));
      std::memcpy(target + row * source.columns + c, &value, 1);
    }
  }
}

void encode_matrix(ExpertEncoding encoding, const MatrixSource& source, std::byte* target,
                   std::byte* scales) {
  const int64_t count = source.rows * source.columns;
  const bool finite =
      std::all_of(source.values, source.values + count, [](float value) { return std::isfinite(value); });
  SMOE_CHECK(
      NumericError, finite,
      "an expert has weights that are not finite; the training run diverged, export an earlier checkpoint");
  switch (encoding) {
    case ExpertEncoding::kFloat32:
      std::memcpy(target, source.values, static_cast<size_t>(count) * sizeof(float));
      return;
    case ExpertEncoding::kBfloat16:
      encode_bfloat16(source, target);
      return;
    case ExpertEncoding::kInt8:
      encode_int8(source, target, scales);
      return;
  }
}

}  // namespace

ExpertLayout make_expert_layout(ExpertEncoding encoding, const ExpertShape& shape) {
  ExpertLayout layout;
  layout.encoding = encoding;
  layout.shape = shape;
  int64_t end = 0;
  const auto place = [&](int64_t bytes) {
    const int64_t offset = round_up(end, kExpertMatrixAlignment);
    end = offset + bytes;
    return offset;
  };
  const int64_t matrix_bytes = shape.dim * shape.expert_dim * bytes_per_value(encoding);
  layout.gate_offset = place(matrix_bytes);
  layout.up_offset = place(matrix_bytes);
  layout.down_offset = place(matrix_bytes);
  if (encoding == ExpertEncoding::kInt8) {
    layout.gate_scale_offset = place(4 * shape.expert_dim);
    layout.up_scale_offset = place(4 * shape.expert_dim);
    layout.down_scale_offset = place(4 * shape.dim);
  }
  layout.block_bytes = round_up(end, kExpertBlockAlignment);
  return layout;
}

ExpertView view_expert(const ExpertLayout& layout, const std::byte* block) {
  ExpertView view{layout.encoding, block + layout.gate_offset, block + layout.up_offset,
                  block + layout.down_offset};
  if (layout.encoding == ExpertEncoding::kInt8) {
    const auto scales = [&](int64_t offset) { return reinterpret_cast<const float*>(block + offset); };
    view.gate_scale_h = scales(layout.gate_scale_offset);
    view.up_scale_h = scales(layout.up_scale_offset);
    view.down_scale_D = scales(layout.down_scale_offset);
  }
  return view;
}

void encode_expert(const ExpertLayout& layout, const ExpertSource& source, std::byte* block) {
  std::memset(block, 0, static_cast<size_t>(layout.block_bytes));
  const int64_t h = layout.shape.expert_dim;
  const int64_t dim = layout.shape.dim;
  encode_matrix(layout.encoding, {source.gate_hD, h, dim}, block + layout.gate_offset,
                block + layout.gate_scale_offset);
  encode_matrix(layout.encoding, {source.up_hD, h, dim}, block + layout.up_offset,
                block + layout.up_scale_offset);
  encode_matrix(layout.encoding, {source.down_Dh, dim, h}, block + layout.down_offset,
                block + layout.down_scale_offset);
}

}  // namespace smoe
