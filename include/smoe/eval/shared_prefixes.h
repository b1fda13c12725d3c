// Which beginnings of token sequences are worth computing once for several of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace smoe {

struct PrefixCounts {
  int64_t prefixes = 0;       // computed once a budget
  int64_t prefix_tokens = 0;  // of them all
  int64_t spared_tokens = 0;  // that would be computed again and again without sharing, a budget
};

struct PrefixPlan {
  // For each sequence how many of its first tokens are computed once for all sequences that share them: a
  // multiple of the unit, less than the whole sequence, 0 where nothing is shared.
  std::vector<int64_t> lengths;
  PrefixCounts counts;
};

// Groups sequences so that about the most tokens are spared, each sequence in one group (a prefix of prefixes
// is not shared). Groups that spare next to nothing are left out, as a prefix costs a forward of its own.
// `unit` 0: nothing is shared. The order of the sequences does not matter.
PrefixPlan plan_shared_prefixes(const std::vector<std::span<const int32_t>>& sequences, int64_t unit);

}  // namespace smoe
