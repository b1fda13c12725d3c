// Which budgets train on which sequence: batch replication and its alternatives.
#pragma once

#include <cstdint>

#include "smoe/train/train_config.h"

namespace smoe {

// A step runs each of its sequences `num_replicas()` times; replica r of a sequence runs at
// `budget(r, sample, step)`. The answer depends on the arguments and the seed only, so it is the same for
// every micro-batch size and after a resume.
class BudgetSampler {
 public:
  BudgetSampler(BudgetSampling sampling, int64_t num_budgets, uint64_t seed);

  int64_t num_replicas() const;
  // Index of the budget. `sample` is the position of the sequence in the global order of the data.
  int64_t budget(int64_t replica, int64_t sample, int64_t step) const;

 private:
  BudgetSampling sampling_;
  int64_t num_budgets_;
  uint64_t seed_;
};

}  // namespace smoe
