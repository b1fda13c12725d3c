// Random numbers that are the same on every machine and compiler, for everything whose order or
// value must be reproducible. The standard library's distributions and std::shuffle are not.
#pragma once

#include <cstdint>

namespace smoe {

// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit state, full period, passes BigCrush.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // Uniform in [0, bound), without modulo bias. `bound` > 0.
  uint64_t below(uint64_t bound);
  // Uniform in [0, 1) with 53 random bits.
  double uniform();

  uint64_t state() const { return state_; }
  void set_state(uint64_t state) { state_ = state; }

 private:
  uint64_t state_;
};

// A well-mixed 64-bit seed from several numbers, so that (seed, epoch, source) streams are independent.
uint64_t mix_seeds(uint64_t a, uint64_t b, uint64_t c = 0);

// A pseudo-random permutation of [0, size) as a function: no table, any index in O(1). A balanced
// Feistel network over the next even power of two with cycle walking.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed);
  // The element at `index`; `index` < size.
  uint64_t operator()(uint64_t index) const;
  uint64_t size() const { return size_; }

 private:
  uint64_t encrypt(uint64_t value) const;

  uint64_t size_;
  int half_bits_;
  uint64_t keys_[4];
};

}  // namespace smoe
