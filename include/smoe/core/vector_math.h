// Functions of one number without branches or calls, so that the loops around them become vector code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "smoe/core/vector_clones.h"

namespace smoe {

// exp(x) = 2^n * exp(r) with |r| <= log(2)/2 and a polynomial for exp(r) (Cephes' coefficients). Relative
// error below 2e-7; x is cut off where the result would leave the normal range; a NaN stays a NaN.
SMOE_INLINE float exponential(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves round(value) in the low bits
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

// float64 is for checking gradients, where the last digits matter more than speed.
SMOE_INLINE double exponential(double x) { return std::exp(x); }

}  // namespace smoe
