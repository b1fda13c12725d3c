#include "smoe/eval/shared_prefixes.h"

#include <algorithm>
#include <numeric>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// What a group must spare: a forward of one row uses the processor badly, and its rows need batches of their
// own.
constexpr int64_t kGroupCost = 256;

using Sequence = std::span<const int32_t>;

// Sequences [begin, end) of the sorted order, which have `length` tokens in common.
struct Group {
  size_t begin = 0;
  size_t end = 0;
  int64_t length = 0;

  int64_t spared() const { return static_cast<int64_t>(end - begin - 1) * length; }
};

// Sequences [begin, ...) with at least `length` common tokens, while they are being read, and the best way to
// group those that are complete.
struct OpenInterval {
  size_t begin = 0;
  int64_t length = 0;
  std::vector<Group> groups;
};

int64_t total_gain(const std::vector<Group>& groups) {
  return std::accumulate(groups.begin(), groups.end(), int64_t{0},
                         [](int64_t sum, const Group& group) { return sum + group.spared() - kGroupCost; });
}

// One group of all, or the groups of its parts: what spares more.
std::vector<Group> close_interval(OpenInterval& interval, size_t end) {
  const Group whole{interval.begin, end, interval.length};
  const int64_t gain = whole.spared() - kGroupCost;
  if (gain > 0 && gain >= total_gain(interval.groups)) return {whole};
  return std::move(interval.groups);
}

int64_t common_tokens(Sequence first, Sequence second, int64_t unit) {
  const int64_t most = std::min(std::ssize(first), std::ssize(second)) - 1;
  int64_t common = 0;
  while (common < most && first[static_cast<size_t>(common)] == second[static_cast<size_t>(common)]) ++common;
  return common / unit * unit;
}

// A tree of intervals, nested by the number of common tokens of sorted neighbours, visited from the leaves up
// with the path from the root on a stack.
std::vector<Group> best_groups(const std::vector<Sequence>& sorted, int64_t unit) {
  std::vector<OpenInterval> path(1);
  for (size_t i = 0; i + 1 < sorted.size(); ++i) {
    const int64_t common = common_tokens(sorted[i], sorted[i + 1], unit);
    size_t begin = i;
    std::vector<Group> finished;
    while (path.back().length > common) {
      begin = path.back().begin;
      path.back().groups.insert(path.back().groups.end(), finished.begin(), finished.end());
      finished = close_interval(path.back(), i + 1);
      path.pop_back();
    }
    if (path.back().length < common) path.push_back({begin, common, {}});
    path.back().groups.insert(path.back().groups.end(), finished.begin(), finished.end());
  }
  std::vector<Group> finished;
  while (!path.empty()) {
    path.back().groups.insert(path.back().groups.end(), finished.begin(), finished.end());
    finished = close_interval(path.back(), sorted.size());
    path.pop_back();
  }
  return finished;
}

}  // namespace

PrefixPlan plan_shared_prefixes(const std::vector<Sequence>& sequences, int64_t unit) {
  PrefixPlan plan;
  plan.lengths.assign(sequences.size(), 0);
  if (unit == 0) return plan;
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return std::ranges::lexicographical_compare(sequences[a], sequences[b]);
  });
  std::vector<Sequence> sorted;
  for (const size_t index : order) sorted.push_back(sequences[index]);
  for (const Group& group : best_groups(sorted, unit)) {
    for (size_t i = group.begin; i < group.end; ++i) plan.lengths[order[i]] = group.length;
    ++plan.counts.prefixes;
    plan.counts.prefix_tokens += group.length;
    plan.counts.spared_tokens += group.spared();
  }
  return plan;
}

}  // namespace smoe
