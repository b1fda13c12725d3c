#include "smoe/data/mixture_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "smoe/core/error.h"
#include "smoe/core/random.h"

namespace smoe {
namespace {

constexpr int kBlockBits = 10;
static_assert(int64_t{1} << kBlockBits == MixtureOrder::kBlock);

int64_t reverse_bits(int64_t value) {
  int64_t reversed = 0;
  for (int bit = 0; bit < kBlockBits; ++bit) {
    reversed |= ((value >> bit) & 1) << (kBlockBits - 1 - bit);
  }
  return reversed;
}

// Whole numbers proportional to `weights` that add up to `total`: floors first, then one more for the largest
// remainders, ties to the earlier source.
std::vector<int64_t> largest_remainder(const std::vector<double>& weights, int64_t total) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> shares;
  std::vector<double> remainders;
  for (const double weight : weights) {
    const double exact = weight / sum * static_cast<double>(total);
    shares.push_back(static_cast<int64_t>(std::floor(exact)));
    remainders.push_back(exact - std::floor(exact));
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  int64_t left = total - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  for (size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) {
    ++shares[order[i]];
  }
  return shares;
}

}  // namespace

MixtureOrder::MixtureOrder(const std::vector<double>& weights, const std::vector<std::string>& names,
                           uint64_t seed)
    : seed_(seed) {
  SMOE_ASSERT(!weights.empty() && weights.size() == names.size());
  const std::vector<int64_t> shares = largest_remainder(weights, kPeriod);
  share_borders_ = {0};
  for (size_t source = 0; source < shares.size(); ++source) {
    SMOE_CHECK(ConfigError, shares[source] > 0,
               "source '{}': weight {} is less than 1/{} of all weights, so that no row of it would be read; "
               "raise the "
               "weight or remove the source",
               names[source], weights[source], kPeriod);
    share_borders_.push_back(share_borders_.back() + shares[source]);
  }
  before_block_.assign((kBlock + 1) * num_sources(), 0);
  for (int64_t b = 0; b < kBlock; ++b) {
    for (int64_t s = 0; s < num_sources(); ++s) {
      const int64_t count = points_below(share_borders_[s + 1], b) - points_below(share_borders_[s], b);
      before_block_[(b + 1) * num_sources() + s] = before_block_[b * num_sources() + s] + count;
    }
  }
}

int64_t MixtureOrder::points_below(int64_t border, int64_t block_in_period) {
  // Points j * kBlock + offset < border: ceil((border - offset) / kBlock) of them.
  return (border - reverse_bits(block_in_period) + kBlock - 1) / kBlock;
}

std::vector<MixtureSample> MixtureOrder::block(int64_t index) const {
  const int64_t period = index / kBlock;
  const int64_t in_period = index % kBlock;
  std::vector<int64_t> sources;
  std::vector<int64_t> next(num_sources());
  for (int64_t s = 0; s < num_sources(); ++s) {
    const int64_t count =
        points_below(share_borders_[s + 1], in_period) - points_below(share_borders_[s], in_period);
    sources.insert(sources.end(), count, s);
    next[s] =
        period * (share_borders_[s + 1] - share_borders_[s]) + before_block_[in_period * num_sources() + s];
  }
  SMOE_ASSERT(static_cast<int64_t>(sources.size()) == kBlock);
  SplitMix64 random(mix_seeds(seed_, static_cast<uint64_t>(index), 0x6D6978));
  for (uint64_t i = kBlock - 1; i > 0; --i) {
    std::swap(sources[i], sources[random.below(i + 1)]);
  }
  std::vector<MixtureSample> samples;
  samples.reserve(kBlock);
  for (const int64_t source : sources) {
    samples.push_back({source, next[source]++});
  }
  return samples;
}

std::vector<MixtureSample> MixtureOrder::samples(int64_t position, int64_t count) const {
  SMOE_ASSERT(position >= 0 && count >= 0);
  std::vector<MixtureSample> result;
  result.reserve(count);
  while (count > 0) {
    const std::vector<MixtureSample> whole = block(position / kBlock);
    const int64_t begin = position % kBlock;
    const int64_t taken = std::min(count, kBlock - begin);
    result.insert(result.end(), whole.begin() + begin, whole.begin() + begin + taken);
    position += taken;
    count -= taken;
  }
  return result;
}

std::vector<int64_t> MixtureOrder::shares() const {
  std::vector<int64_t> shares;
  for (int64_t s = 0; s < num_sources(); ++s) {
    shares.push_back(share_borders_[s + 1] - share_borders_[s]);
  }
  return shares;
}

}  // namespace smoe
