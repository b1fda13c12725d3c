#include "bpe_merges.h"

#include <gtest/gtest.h>

#include <map>

#include "smoe/core/random.h"

namespace smoe {
namespace {

using Rules = std::map<std::pair<int32_t, int32_t>, std::pair<int32_t, int32_t>>;  // pair -> rank, merged

// Looks for the best pair from scratch after every merge.
std::vector<int32_t> apply_slowly(const Rules& rules, std::vector<int32_t> symbols) {
  while (true) {
    size_t best = symbols.size();
    int32_t best_rank = INT32_MAX;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = rules.find({symbols[i], symbols[i + 1]});
      if (found != rules.end() && found->second.first < best_rank) {
        best = i;
        best_rank = found->second.first;
      }
    }
    if (best == symbols.size()) {
      return symbols;
    }
    symbols[best] = rules.at({symbols[best], symbols[best + 1]}).second;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(BpeMerges, EqualASlowSearchForShortAndLongWords) {
  SplitMix64 random(11);
  for (int round = 0; round < 300; ++round) {
    const auto letters = static_cast<int32_t>(2 + random.below(4));
    int32_t symbols_known = letters;
    Rules rules;
    BpeMerges merges(64);
    for (int32_t rank = 0; rank < 64; ++rank) {
      const auto left = static_cast<int32_t>(random.below(static_cast<uint64_t>(symbols_known)));
      const auto right = static_cast<int32_t>(random.below(static_cast<uint64_t>(symbols_known)));
      rules[{left, right}] = {rank, symbols_known};
      merges.add(left, right, rank, symbols_known++);
    }
    for (const uint64_t length : {0, 1, 2, 7, 39, 40, 41, 120}) {
      std::vector<int32_t> word;
      for (uint64_t i = 0; i < length; ++i) {
        word.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(letters))));
      }
      std::vector<int32_t> merged = word;
      merges.apply(merged);
      ASSERT_EQ(merged, apply_slowly(rules, word)) << "round " << round << " length " << length;
    }
  }
}

}  // namespace
}  // namespace smoe
