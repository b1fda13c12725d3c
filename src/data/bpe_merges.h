// The merge rules of a BPE model and their application to one word (internal to the tokenizers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smoe {

class BpeMerges {
 public:
  // Room for `count` rules.
  explicit BpeMerges(size_t count);

  // Neighbours `left`, `right` may become `merged`; lower ranks go first. A repeated pair replaces the
  // earlier.
  void add(int32_t left, int32_t right, int32_t rank, int32_t merged);

  // Applies the rules to `symbols` until none fits: always the lowest rank, and the leftmost of equals.
  void apply(std::vector<int32_t>& symbols) const;

 private:
  struct Rule {
    uint64_t pair = kNoPair;
    int32_t rank = kNoRank;
    int32_t merged = -1;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr int32_t kNoRank = INT32_MAX;

  const Rule& find(int32_t left, int32_t right) const;
  size_t slot_of(uint64_t pair) const;
  void apply_by_scan(std::vector<int32_t>& symbols) const;
  void apply_by_queue(std::vector<int32_t>& symbols) const;

  std::vector<Rule> table_;  // open addressing; a power of two, at most half full
  int shift_;
};

}  // namespace smoe
