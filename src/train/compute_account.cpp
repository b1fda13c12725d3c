#include "smoe/train/compute_account.h"

#include <numeric>

#include "smoe/model/parameter_counts.h"

namespace smoe {
namespace {

// Share of the sequences that train at budget `index` of `count`.
double share_of_sequences(BudgetSampling sampling, size_t index, size_t count) {
  const double even = 1.0 / static_cast<double>(count);
  switch (sampling) {
    case BudgetSampling::kReplicate:
      return 1.0;
    case BudgetSampling::kCyclic:
    case BudgetSampling::kRandom:
      return even;
    case BudgetSampling::kSandwich:
      if (count <= 2 || index == 0 || index + 1 == count) return 1.0;
      return 1.0 / static_cast<double>(count - 2);
  }
  return 0.0;
}

double sum(const std::vector<BudgetCompute>& budgets, double BudgetCompute::*value) {
  return std::accumulate(
      budgets.begin(), budgets.end(), 0.0,
      [value](double total, const BudgetCompute& budget) { return total + budget.*value; });
}

}  // namespace

double ComputeAccount::tokens() const { return sum(budgets, &BudgetCompute::tokens); }
double ComputeAccount::flops_6nt() const { return sum(budgets, &BudgetCompute::flops_6nt); }
double ComputeAccount::flops_exact() const { return sum(budgets, &BudgetCompute::flops_exact); }

ComputeAccount account_compute(const TrainConfig& config) {
  const ParameterCounts counts = count_parameters(config.model, config.data.sequence_length);
  const double unique_tokens = static_cast<double>(config.steps) * static_cast<double>(config.batch_size) *
                               static_cast<double>(config.data.sequence_length);
  ComputeAccount account;
  for (size_t i = 0; i < counts.budgets.size(); ++i) {
    const BudgetCounts& budget = counts.budgets[i];
    BudgetCompute compute;
    compute.name = budget.name;
    compute.active = static_cast<double>(budget.active_non_embedding);
    compute.tokens = unique_tokens * share_of_sequences(config.budget_sampling, i, counts.budgets.size());
    compute.flops_6nt = 6.0 * compute.active * compute.tokens;
    compute.flops_exact = 3.0 * budget.forward_flops_per_token * compute.tokens;
    account.budgets.push_back(compute);
  }
  return account;
}

}  // namespace smoe
