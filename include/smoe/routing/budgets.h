// Active budgets: how many routed experts a MoE layer runs, by name, and their loss weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smoe/core/config.h"

namespace smoe {

// One active size of a checkpoint.
struct BudgetConfig {
  std::string name;
  int64_t experts_per_layer = 1;
};
template <class Visitor>
void visit_fields(Visitor& visitor, BudgetConfig& config) {
  visitor.field("name", config.name, "label, for example 1B");
  visitor.field("experts_per_layer", config.experts_per_layer, "k: routed experts active in each MoE layer",
                at_least(0));
}

// Index into `budgets` of the one that `text` names: its name, or its k as a number.
// Throws ConfigError that lists the budgets.
int64_t find_budget(const std::vector<BudgetConfig>& budgets, const std::string& text);

// Loss weights alpha_i = k_i^power / mean_j k_j^power (paper, equation 3; the paper gives no formula).
// The mean is 1, so that learning rate and clipping keep their meaning. Power 0 gives all ones.
// Budgets with k = 0 and power > 0 are an error (their weight would be 0): throws ConfigError.
std::vector<double> budget_loss_weights(const std::vector<BudgetConfig>& budgets, double power);

}  // namespace smoe
