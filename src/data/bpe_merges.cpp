#include "bpe_merges.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <tuple>

namespace smoe {
namespace {

// Up to this many symbols, scanning all pairs again after each merge beats a queue's bookkeeping.
constexpr size_t kLongestScanned = 40;

uint64_t pack(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

}  // namespace

BpeMerges::BpeMerges(size_t count) {
  const size_t slots = std::bit_ceil(std::max<size_t>(2 * count, 16));
  table_.resize(slots);
  shift_ = 64 - std::countr_zero(slots);
}

size_t BpeMerges::slot_of(uint64_t pair) const {
  // Fibonacci hashing: the high bits of the product are well mixed.
  size_t slot = (pair * 0x9E3779B97F4A7C15ULL) >> shift_;
  while (table_[slot].pair != kNoPair && table_[slot].pair != pair) {
    slot = (slot + 1) & (table_.size() - 1);
  }
  return slot;
}

void BpeMerges::add(int32_t left, int32_t right, int32_t rank, int32_t merged) {
  const uint64_t pair = pack(left, right);
  table_[slot_of(pair)] = {pair, rank, merged};
}

const BpeMerges::Rule& BpeMerges::find(int32_t left, int32_t right) const {
  return table_[slot_of(pack(left, right))];
}

void BpeMerges::apply(std::vector<int32_t>& symbols) const {
  if (symbols.size() <= kLongestScanned) {
    apply_by_scan(symbols);
  } else {
    apply_by_queue(symbols);
  }
}

void BpeMerges::apply_by_scan(std::vector<int32_t>& symbols) const {
  if (symbols.size() < 2) {
    return;
  }
  Rule rules[kLongestScanned];  // rules[i] joins symbols i and i + 1
  size_t pairs = symbols.size() - 1;
  for (size_t i = 0; i < pairs; ++i) {
    rules[i] = find(symbols[i], symbols[i + 1]);
  }
  while (pairs > 0) {
    const Rule* best =
        std::min_element(rules, rules + pairs, [](const Rule& a, const Rule& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) {
      break;
    }
    const auto at = static_cast<size_t>(best - rules);
    symbols[at] = best->merged;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
    std::copy(rules + at + 1, rules + pairs, rules + at);
    --pairs;
    if (at > 0) {
      rules[at - 1] = find(symbols[at - 1], symbols[at]);
    }
    if (at < pairs) {
      rules[at] = find(symbols[at], symbols[at + 1]);
    }
  }
}

void BpeMerges::apply_by_queue(std::vector<int32_t>& symbols) const {
  constexpr size_t kNone = ~size_t{0};
  const size_t size = symbols.size();
  std::vector<size_t> next(size);
  std::vector<size_t> previous(size);
  using Candidate = std::tuple<int32_t, size_t>;  // rank, position of the left symbol
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](size_t left) {
    if (left != kNone && next[left] != kNone) {
      const Rule& rule = find(symbols[left], symbols[next[left]]);
      if (rule.rank != kNoRank) {
        queue.emplace(rule.rank, left);
      }
    }
  };
  for (size_t i = 0; i < size; ++i) {
    next[i] = i + 1 < size ? i + 1 : kNone;
    previous[i] = i > 0 ? i - 1 : kNone;
  }
  for (size_t i = 0; i < size; ++i) {
    offer(i);
  }
  while (!queue.empty()) {
    const auto [rank, left] = queue.top();
    queue.pop();
    const size_t right = next[left];
    // Entries are not removed when a neighbour changes; they are recognised here.
    if (symbols[left] < 0 || right == kNone) {
      continue;
    }
    const Rule& rule = find(symbols[left], symbols[right]);
    if (rule.rank != rank) {
      continue;
    }
    symbols[left] = rule.merged;
    symbols[right] = -1;
    next[left] = next[right];
    if (next[left] != kNone) {
      previous[next[left]] = left;
    }
    offer(previous[left]);
    offer(left);
  }
  std::erase(symbols, -1);
}

}  // namespace smoe
