// Functions of one number without branches or calls, so that the loops around them become vector code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "smoe/core/vector_clones.h"

namespace smoe {

// exp(x) for x <= 88, as in a softmax, where x <= 0: 2^n * exp(r) with |r| <= log(2)/2 and a polynomial for
// exp(r) (Cephes' coefficients). Relative error below 2e-7; x is cut off where the result would leave the
// normal range; a NaN stays a NaN.
SMOE_INLINE float bounded_exponential(float x) {
  // 1.5 * 2^23 and the bias of exponents: adding it leaves the exponent bits of 2^round(value) in the low
  // bits.
  constexpr float kRound = 12582912.0F + 127.0F;
  x = x < -87.0F ? -87.0F : x;
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
  return p * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}

// exp(x) for any x, cut off above, too.
SMOE_INLINE float exponential(float x) { return bounded_exponential(x > 88.0F ? 88.0F : x); }

// float64 is for checking gradients, where the last digits matter more than speed.
SMOE_INLINE double bounded_exponential(double x) { return std::exp(x); }
SMOE_INLINE double exponential(double x) { return std::exp(x); }

}  // namespace smoe
