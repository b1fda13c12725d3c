#include "smoe/routing/budgets.h"

#include <charconv>
#include <cmath>

#include "smoe/core/error.h"

namespace smoe {
namespace {

std::string list_budgets(const std::vector<BudgetConfig>& budgets) {
  std::string text;
  for (const BudgetConfig& budget : budgets) {
    text += fmt::format("{}{} (k = {})", text.empty() ? "" : ", ", budget.name, budget.experts_per_layer);
  }
  return text.empty() ? "none" : text;
}

}  // namespace

int64_t find_budget(const std::vector<BudgetConfig>& budgets, const std::string& text) {
  // Names come first: a budget may be called "8" and still have another k.
  for (size_t i = 0; i < budgets.size(); ++i) {
    if (budgets[i].name == text) return static_cast<int64_t>(i);
  }
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, count);
  if (status == std::errc() && stop == end) {
    for (size_t i = 0; i < budgets.size(); ++i) {
      if (budgets[i].experts_per_layer == count) return static_cast<int64_t>(i);
    }
  }
  throw ConfigError(
      fmt::format("budget '{}' does not exist. Give a name or a k of: {}", text, list_budgets(budgets)));
}

std::vector<double> budget_loss_weights(const std::vector<BudgetConfig>& budgets, double power) {
  SMOE_CHECK(ConfigError, std::isfinite(power), "loss weights: the power is {}; it must be a finite number",
             power);
  std::vector<double> weights(budgets.size(), 1.0);
  if (power == 0.0) return weights;
  double mean = 0;
  for (size_t i = 0; i < budgets.size(); ++i) {
    SMOE_CHECK(
        ConfigError, budgets[i].experts_per_layer > 0,
        "loss weights: budget '{}' has k = 0, so that k^{} is no usable weight. Set the power to 0 or give "
        "the weights as a list",
        budgets[i].name, power);
    weights[i] = std::pow(static_cast<double>(budgets[i].experts_per_layer), power);
    mean += weights[i] / static_cast<double>(budgets.size());
  }
  for (double& weight : weights) weight /= mean;
  return weights;
}

}  // namespace smoe
