// The generator and sampling of CPython's `random` module, so that few-shot examples are the same rows that
// lm-evaluation-harness shows. Neither std::mt19937(seed) nor std::seed_seq gives this sequence.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace smoe {

// MT19937 seeded like random.Random(seed) for a non-negative integer seed.
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  uint32_t next_word();
  // Uniform in [0, bound): the top bits of one word, again while too large. 0 < bound < 2^32.
  int64_t below(int64_t bound);
  // random.sample(range(size), count). Requires count <= size < 2^32.
  std::vector<int64_t> sample(int64_t size, int64_t count);

 private:
  static constexpr int kWords = 624;
  void initialize(uint32_t seed);
  void initialize(const std::vector<uint32_t>& key);
  void refill();

  std::array<uint32_t, kWords> state_{};
  int next_ = kWords;
};

}  // namespace smoe
