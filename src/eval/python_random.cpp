#include "smoe/eval/python_random.h"

#include <bit>
#include <numeric>
#include <set>

#include "smoe/core/error.h"

namespace smoe {

// Matsumoto and Nishimura 1998, with the 2002 initialisation by an array, which CPython uses for every seed.
void PythonRandom::initialize(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
}

void PythonRandom::initialize(const std::vector<uint32_t>& key) {
  initialize(19650218u);
  size_t i = 1;
  size_t j = 0;
  const auto advance = [&] {
    if (++i == kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  for (size_t round = std::max<size_t>(kWords, key.size()); round > 0; --round) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525u)) + key[j] +
                static_cast<uint32_t>(j);
    advance();
    if (++j == key.size()) j = 0;
  }
  for (size_t round = kWords - 1; round > 0; --round) {
    state_[i] =
        (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941u)) - static_cast<uint32_t>(i);
    advance();
  }
  state_[0] = 0x80000000u;
  next_ = kWords;
}

PythonRandom::PythonRandom(uint64_t seed) {
  std::vector<uint32_t> key = {static_cast<uint32_t>(seed)};
  if (seed >> 32 != 0) key.push_back(static_cast<uint32_t>(seed >> 32));
  initialize(key);
}

void PythonRandom::refill() {
  for (size_t i = 0; i < kWords; ++i) {
    const uint32_t mixed = (state_[i] & 0x80000000u) | (state_[(i + 1) % kWords] & 0x7FFFFFFFu);
    state_[i] = state_[(i + 397) % kWords] ^ (mixed >> 1) ^ ((mixed & 1u) != 0 ? 0x9908B0DFu : 0u);
  }
  next_ = 0;
}

uint32_t PythonRandom::next_word() {
  if (next_ == kWords) refill();
  uint32_t word = state_[static_cast<size_t>(next_++)];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9D2C5680u;
  word ^= (word << 15) & 0xEFC60000u;
  return word ^ (word >> 18);
}

int64_t PythonRandom::below(int64_t bound) {
  SMOE_ASSERT(bound > 0 && bound < (int64_t{1} << 32));
  const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(bound)));
  int64_t drawn;
  do {
    drawn = next_word() >> (32 - bits);
  } while (drawn >= bound);
  return drawn;
}

std::vector<int64_t> PythonRandom::sample(int64_t size, int64_t count) {
  SMOE_ASSERT(count >= 0 && count <= size);
  // CPython takes the method that needs less memory: a pool list, or a set of what was drawn.
  int64_t threshold = 21;
  if (count > 5) {
    int64_t power = 1;
    while (power < 3 * count) power *= 4;
    threshold += power;
  }
  std::vector<int64_t> drawn;
  if (size <= threshold) {
    std::vector<int64_t> pool(static_cast<size_t>(size));
    std::iota(pool.begin(), pool.end(), 0);
    for (int64_t i = 0; i < count; ++i) {
      const auto slot = static_cast<size_t>(below(size - i));
      drawn.push_back(pool[slot]);
      pool[slot] = pool[static_cast<size_t>(size - i - 1)];
    }
  } else {
    std::set<int64_t> seen;
    while (std::ssize(drawn) < count) {
      const int64_t index = below(size);
      if (seen.insert(index).second) drawn.push_back(index);
    }
  }
  return drawn;
}

}  // namespace smoe
