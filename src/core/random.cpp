#include "smoe/core/random.h"

#include <bit>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// The output function of SplitMix64: a bijection that spreads every bit over all 64.
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;

}  // namespace

uint64_t SplitMix64::next() {
  state_ += kGoldenGamma;
  return mix(state_);
}

uint64_t SplitMix64::below(uint64_t bound) {
  SMOE_ASSERT(bound > 0);
  // Values under 2^64 mod bound would make the small remainders more frequent: draw again.
  const uint64_t threshold = (0 - bound) % bound;
  uint64_t value = next();
  while (value < threshold) value = next();
  return value % bound;
}

double SplitMix64::uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

uint64_t mix_seeds(uint64_t a, uint64_t b, uint64_t c) {
  // Each step adds before it mixes, so that (a, b) and (b, a), and zeros, give different results.
  const uint64_t first = mix(a + kGoldenGamma);
  const uint64_t second = mix(first + b + kGoldenGamma);
  return mix(second + c + kGoldenGamma);
}

// The network works on pairs of equal halves, so the domain has an even number of bits. It is less
// than four times `size`, hence cycle walking takes under four steps on average.
Permutation::Permutation(uint64_t size, uint64_t seed) : size_(size), half_bits_(1), keys_{} {
  SMOE_ASSERT(size > 0);
  const int bits = static_cast<int>(std::bit_width(size - 1));
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
  SplitMix64 stream(seed);
  for (uint64_t& key : keys_) key = stream.next();
}

uint64_t Permutation::operator()(uint64_t index) const {
  SMOE_ASSERT(index < size_);
  uint64_t value = encrypt(index);
  while (value >= size_) value = encrypt(value);
  return value;
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next_right = left ^ (mix(right + key) & mask);
    left = right;
    right = next_right;
  }
  return (left << half_bits_) | right;
}

}  // namespace smoe
