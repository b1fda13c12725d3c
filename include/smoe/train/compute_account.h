// What a training run costs on paper, a budget: the common estimate 6 N T and exact counts.
#pragma once

#include <string>
#include <vector>

#include "smoe/train/train_config.h"

namespace smoe {

struct BudgetCompute {
  std::string name;
  double active = 0.0;  // N: active parameters without embeddings
  double tokens =
      0.0;  // T: tokens that the whole run trains at this budget (expected, where budgets are drawn)
  double flops_6nt = 0.0;  // 6 N T
  // 3 x forward, with attention scores and output head. Dense layers that run once for all replicas of a
  // sequence count for each of them: the cost of the model, not of the way it is run.
  double flops_exact = 0.0;
};

struct ComputeAccount {
  std::vector<BudgetCompute> budgets;

  // Sums over the budgets: what the run as a whole costs.
  double tokens() const;
  double flops_6nt() const;
  double flops_exact() const;
};

// The whole run of `config`; rows are counted as full.
ComputeAccount account_compute(const TrainConfig& config);

}  // namespace smoe
