#include "smoe/infer/expert_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "smoe/core/random.h"

namespace smoe {
namespace {

// Every rule of the policy written out over plain maps, with no care for speed.
class NaiveCache {
 public:
  NaiveCache(int64_t num_slots, EvictionPolicy policy, double decay)
      : num_slots_(num_slots), policy_(policy), decay_(decay) {}

  // The whole choice is used at once; returns the hits.
  int64_t use(const std::vector<int64_t>& keys) {
    for (auto& [key, count] : frequency_) count *= decay_;
    for (const int64_t key : keys) frequency_[key] += 1.0;
    int64_t hits = 0;
    const std::set<int64_t> wanted(keys.begin(), keys.end());
    for (const int64_t key : keys) hits += last_use_.contains(key) ? 1 : 0;
    for (const int64_t key : keys) {
      if (!last_use_.contains(key) && std::ssize(last_use_) == num_slots_) evict(wanted);
      last_use_[key] = 0;
    }
    for (const int64_t key : keys) last_use_[key] = ++clock_;
    return hits;
  }
  std::set<int64_t> content() const {
    std::set<int64_t> keys;
    for (const auto& [key, use] : last_use_) keys.insert(key);
    return keys;
  }

 private:
  void evict(const std::set<int64_t>& wanted) {
    int64_t victim = -1;
    std::pair<double, double> least{std::numeric_limits<double>::infinity(), 0.0};
    for (const auto& [key, use] : last_use_) {
      if (wanted.contains(key)) continue;
      const double frequency = policy_ == EvictionPolicy::kDecayedFrequency ? frequency_[key] : 0.0;
      const std::pair<double, double> rank{frequency, static_cast<double>(use)};
      if (rank < least) {
        least = rank;
        victim = key;
      }
    }
    last_use_.erase(victim);
  }

  int64_t num_slots_;
  EvictionPolicy policy_;
  double decay_;
  int64_t clock_ = 0;
  std::map<int64_t, int64_t> last_use_;
  std::map<int64_t, double> frequency_;
};

std::vector<int64_t> random_choice(SplitMix64& random, int64_t count, int64_t num_keys) {
  std::set<int64_t> keys;
  // Low keys are favoured, so that frequency has something to find.
  while (std::ssize(keys) < count) {
    keys.insert(static_cast<int64_t>(std::pow(random.uniform(), 2.0) * static_cast<double>(num_keys)));
  }
  return {keys.begin(), keys.end()};
}

// Uses a choice as the store does; returns the hits.
int64_t use(ExpertCache& cache, const std::vector<int64_t>& keys) {
  int64_t hits = 0;
  cache.choose(keys);
  cache.set_position(0);
  for (const int64_t key : keys) {
    if (cache.slot_of(key) < 0) continue;
    ++hits;
    cache.set_locked(cache.slot_of(key), true);
  }
  for (const int64_t key : keys) {
    if (cache.slot_of(key) < 0) {
      EXPECT_TRUE(cache.place(key).has_value());
    }
  }
  for (const int64_t key : keys) {
    cache.mark_used(key);
    cache.set_locked(cache.slot_of(key), false);
  }
  return hits;
}

TEST(ExpertCache, EvictsAsANaiveSimulationDoes) {
  for (const auto policy : {EvictionPolicy::kLeastRecentlyUsed, EvictionPolicy::kDecayedFrequency}) {
    SplitMix64 random(11);
    // A power of two, so that both ways of decaying give exactly the same numbers.
    ExpertCache cache({20, 96, 24}, policy, 0.5);
    NaiveCache naive(20, policy, 0.5);
    for (int64_t round = 0; round < 400; ++round) {
      const std::vector<int64_t> keys = random_choice(random, 12, 96);
      EXPECT_EQ(use(cache, keys), naive.use(keys));
      std::set<int64_t> content;
      for (int64_t key = 0; key < 96; ++key) {
        if (cache.slot_of(key) >= 0) content.insert(key);
      }
      ASSERT_EQ(content, naive.content()) << "round " << round;
    }
  }
}

TEST(ExpertCache, KeepsLockedSlots) {
  ExpertCache cache({2, 8, 8}, EvictionPolicy::kLeastRecentlyUsed, 0.9);
  ASSERT_TRUE(cache.place(0));
  ASSERT_TRUE(cache.place(1));
  EXPECT_FALSE(cache.place(2));
  cache.set_locked(cache.slot_of(1), false);
  const auto placement = cache.place(2);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->evicted_key, 1);
  EXPECT_EQ(cache.slot_of(1), -1);
}

// Five layers with one expert each walk through three slots again and again. Least-recently-used would miss
// every time; the best possible misses 3 times a round after the first.
TEST(ExpertCache, EvictsWhatTheWalkNeedsLast) {
  ExpertCache cache({3, 5, 1}, EvictionPolicy::kLeastRecentlyUsed, 0.9);
  cache.choose({0, 1, 2, 3, 4});
  int64_t misses = 0;
  for (int64_t round = 0; round < 10; ++round) {
    for (int64_t layer = 0; layer < 5; ++layer) {
      cache.set_position(layer);
      if (cache.slot_of(layer) < 0) {
        ++misses;
        ASSERT_TRUE(cache.place(layer));
      }
      cache.mark_used(layer);
      cache.set_locked(cache.slot_of(layer), false);
    }
  }
  EXPECT_LE(misses, 5 + 9 * 3);
}

TEST(ExpertCache, DoesNotEvictWhatIsNeededSoonerForWhatIsNeededLater) {
  ExpertCache cache({1, 3, 1}, EvictionPolicy::kLeastRecentlyUsed, 0.9);
  cache.choose({0, 1, 2});
  cache.set_position(1);
  ASSERT_TRUE(cache.place(1));
  cache.set_locked(cache.slot_of(1), false);
  EXPECT_FALSE(cache.place(2));
}

TEST(ExpertCache, ReadsAheadOnlyIntoSlotsThatTheWalkHasLeft) {
  ExpertCache cache({2, 4, 1}, EvictionPolicy::kLeastRecentlyUsed, 0.9);
  cache.choose({0, 1, 2, 3});
  ASSERT_TRUE(cache.place(0));
  ASSERT_TRUE(cache.place(3));
  cache.set_locked(cache.slot_of(3), false);
  EXPECT_FALSE(cache.place(1));
  cache.set_locked(cache.slot_of(0), false);
  cache.set_position(1);
  const auto placement = cache.place(1);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->evicted_key, 0);
}

// A layer with more experts than there are slots is walked through in parts.
TEST(ExpertCache, LetsGoOfThePartOfALayerThatTheWalkHasPassed) {
  ExpertCache cache({2, 8, 4}, EvictionPolicy::kLeastRecentlyUsed, 0.9);
  cache.choose({0, 1, 2, 3, 4});
  ASSERT_TRUE(cache.place(0));
  ASSERT_TRUE(cache.place(1));
  for (const int64_t key : {0, 1}) cache.set_locked(cache.slot_of(key), false);
  EXPECT_FALSE(cache.place(2));
  cache.set_position(2);
  EXPECT_TRUE(cache.place(2));
  EXPECT_TRUE(cache.place(3));
  EXPECT_EQ(cache.slot_of(0), -1);
  EXPECT_EQ(cache.slot_of(1), -1);
}

}  // namespace
}  // namespace smoe
