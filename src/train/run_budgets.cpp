// The budgets of a run by name, with their weights in the loss and their router statistics.
#include "smoe/train/gradient_accumulator.h"

namespace smoe {

std::vector<std::string> budget_names(const ModelConfig& config) {
  if (config.architecture == Architecture::kDense) return {"dense"};
  std::vector<std::string> names;
  for (const BudgetConfig& budget : config.budgets) names.push_back(budget.name);
  return names;
}

std::vector<double> loss_weights(const TrainConfig& config) {
  if (config.model.architecture == Architecture::kDense) return {1.0};
  if (config.loss.budget_weights) return *config.loss.budget_weights;
  return budget_loss_weights(config.model.budgets, config.loss.budget_weight_power);
}

std::vector<RouterStatistics> make_router_statistics(const ModelConfig& config) {
  std::vector<RouterStatistics> statistics;
  if (config.architecture != Architecture::kSteppedMoe) return statistics;
  for (size_t i = 0; i < config.budgets.size(); ++i) {
    statistics.emplace_back(config.num_moe_layers, config.num_experts);
  }
  return statistics;
}

}  // namespace smoe
