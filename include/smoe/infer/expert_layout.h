// How one routed expert lies in a package and in memory: three matrices (and the scales of their rows, for
// int8) in one block that is read at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "smoe/model/expert_provider.h"

namespace smoe {

// Blocks begin at multiples of this, as direct reads need.
inline constexpr int64_t kExpertBlockAlignment = 4096;
// Matrices and scales begin at multiples of this inside a block.
inline constexpr int64_t kExpertMatrixAlignment = 64;

// Byte offsets inside a block; every part follows from encoding and shape.
struct ExpertLayout {
  ExpertEncoding encoding = ExpertEncoding::kFloat32;
  ExpertShape shape;
  int64_t gate_offset = 0;
  int64_t up_offset = 0;
  int64_t down_offset = 0;
  int64_t gate_scale_offset = 0;  // int8 only
  int64_t up_scale_offset = 0;
  int64_t down_scale_offset = 0;
  int64_t block_bytes = 0;  // a multiple of kExpertBlockAlignment
};

ExpertLayout make_expert_layout(ExpertEncoding encoding, const ExpertShape& shape);

// The expert in the block that begins at `block`.
ExpertView view_expert(const ExpertLayout& layout, const std::byte* block);

// Float32 weights of one expert, row-major.
struct ExpertSource {
  const float* gate_hD = nullptr;
  const float* up_hD = nullptr;
  const float* down_Dh = nullptr;
};

// Fills the block, padding included. bf16 rounds to nearest even; int8 rounds value / scale to nearest even
// with scale = largest magnitude of the row / 127. Throws NumericError on values that are not finite.
void encode_expert(const ExpertLayout& layout, const ExpertSource& source, std::byte* block);

}  // namespace smoe
