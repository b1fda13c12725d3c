// Which source every sample of training comes from, as a function of (weights, seed, position).
//
// Weights become whole shares of 2^20 samples (largest remainder), so that every aligned run of 2^20 samples
// holds exactly these shares. The samples come in blocks of 1024. Block b of a run takes the points j * 1024
// + r(b), j = 0..1023, of the run, where r reverses the ten bits of b (van der Corput's sequence): each block
// holds every source within one sample of its share, and the error does not add up over blocks. Inside a
// block the order is shuffled by (seed, block).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace smoe {

// Sample `index` of source `source`: each source is read in the order 0, 1, 2, ...
struct MixtureSample {
  int64_t source = 0;
  int64_t index = 0;

  friend bool operator==(const MixtureSample&, const MixtureSample&) = default;
};

class MixtureOrder {
 public:
  static constexpr int64_t kBlock = 1024;
  static constexpr int64_t kPeriod = kBlock * kBlock;

  // `weights` > 0, one a source; only their ratios count. Throws ConfigError, naming the source, if one has
  // less than half of 1/2^20 of the whole: it would never be read.
  MixtureOrder(const std::vector<double>& weights, const std::vector<std::string>& names, uint64_t seed);

  // Samples [position, position + count) of training. O(count + kBlock) wherever `position` is.
  std::vector<MixtureSample> samples(int64_t position, int64_t count) const;

  // Samples of each source in every aligned run of kPeriod samples.
  std::vector<int64_t> shares() const;

 private:
  int64_t num_sources() const { return static_cast<int64_t>(share_borders_.size()) - 1; }
  // Points of block `block_in_period` that lie below `border`.
  static int64_t points_below(int64_t border, int64_t block_in_period);
  std::vector<MixtureSample> block(int64_t index) const;

  std::vector<int64_t> share_borders_;  // [sources + 1] cumulative shares, 0 .. kPeriod
  std::vector<int64_t>
      before_block_;  // [kBlock, sources] samples of the source in earlier blocks of the period
  uint64_t seed_;
};

}  // namespace smoe
