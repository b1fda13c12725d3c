#include "smoe/train/budget_sampler.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/core/random.h"

namespace smoe {
namespace {

// Keeps the stream of budgets apart from other uses of the run's seed.
constexpr uint64_t kBudgetStream = 0x6275646765747321;

}  // namespace

BudgetSampler::BudgetSampler(BudgetSampling sampling, int64_t num_budgets, uint64_t seed)
    : sampling_(sampling), num_budgets_(num_budgets), seed_(mix_seeds(seed, kBudgetStream)) {
  SMOE_ASSERT(num_budgets >= 1);
}

int64_t BudgetSampler::num_replicas() const {
  switch (sampling_) {
    case BudgetSampling::kReplicate:
      return num_budgets_;
    case BudgetSampling::kCyclic:
    case BudgetSampling::kRandom:
      return 1;
    case BudgetSampling::kSandwich:
      return std::min<int64_t>(num_budgets_, 3);
  }
  SMOE_ASSERT(false);
  return 1;
}

int64_t BudgetSampler::budget(int64_t replica, int64_t sample, int64_t step) const {
  SMOE_ASSERT(replica >= 0 && replica < num_replicas());
  SplitMix64 random(mix_seeds(seed_, static_cast<uint64_t>(step), static_cast<uint64_t>(sample)));
  switch (sampling_) {
    case BudgetSampling::kReplicate:
      return replica;
    case BudgetSampling::kCyclic:
      return sample % num_budgets_;
    case BudgetSampling::kRandom:
      return static_cast<int64_t>(random.below(static_cast<uint64_t>(num_budgets_)));
    case BudgetSampling::kSandwich:
      if (replica == 0) return 0;
      if (replica == 1) return num_budgets_ - 1;
      return 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(num_budgets_ - 2)));
  }
  SMOE_ASSERT(false);
  return 0;
}

}  // namespace smoe
