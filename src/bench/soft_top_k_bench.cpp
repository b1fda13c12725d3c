#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "bench_setup.h"
#include "smoe/core/table.h"
#include "smoe/routing/soft_top_k.h"
#include "smoe/routing/soft_top_k_solvers.h"

// Shape legend: R rows (segments x layers of one budget), E experts.
namespace smoe {
namespace {

constexpr int kLoopRounds = 20;

// The dual iteration of the papers that use this relaxation, through autograd.
at::Tensor loop_soft_top_k(const at::Tensor& scores_RE, double k, double temperature) {
  at::Tensor cap_RE = -scores_RE;
  at::Tensor shift_R1;
  for (int round = 0; round < kLoopRounds; ++round) {
    shift_R1 = temperature *
               (std::log(k) - at::logsumexp((scores_RE + cap_RE) / temperature, {1}, /*keepdim=*/true));
    cap_RE = -at::relu(scores_RE + shift_R1);
  }
  return at::exp((scores_RE + shift_R1 + cap_RE) / temperature);
}

using Operator = std::function<at::Tensor(const at::Tensor& scores_RE, double k)>;

// Forward and backward of all budgets.
void run_all(const Operator& soft, const at::Tensor& scores_RE, const at::Tensor& gradient_RE,
             const std::vector<BudgetConfig>& budgets) {
  for (const BudgetConfig& budget : budgets) {
    const at::Tensor lambda_RE = soft(scores_RE, static_cast<double>(budget.experts_per_layer));
    torch::autograd::grad({lambda_RE}, {scores_RE}, {gradient_RE});
  }
}

at::Tensor exact(const at::Tensor& scores_RE, double k, double temperature) {
  return soft_top_k(scores_RE, at::full({scores_RE.size(0)}, k, at::kDouble), temperature);
}

SoftTopKAccuracy accuracy_at(double temperature, const at::Tensor& scores_RE,
                             const std::vector<BudgetConfig>& budgets) {
  const at::NoGradGuard no_gradients;
  SoftTopKAccuracy accuracy{temperature, 0, 0};
  for (const BudgetConfig& budget : budgets) {
    const auto k = static_cast<double>(budget.experts_per_layer);
    // The other solver, by sorting and in float64.
    const at::Tensor reference_RE =
        soft_top_k_forward_tensor(scores_RE.to(at::kDouble), at::full({scores_RE.size(0)}, k, at::kDouble),
                                  temperature, SoftTopKKind::kEntropy);
    const auto error = [&](const at::Tensor& lambda_RE) {
      return (lambda_RE.to(at::kDouble) - reference_RE).abs().max().item<double>();
    };
    accuracy.exact_error = std::max(accuracy.exact_error, error(exact(scores_RE, k, temperature)));
    accuracy.loop_error = std::max(accuracy.loop_error, error(loop_soft_top_k(scores_RE, k, temperature)));
  }
  return accuracy;
}

}  // namespace

SoftTopKReport run_soft_top_k_bench(const SpeedOptions& options, const std::vector<double>& temperatures) {
  const ModelConfig& model = options.config.model;
  const int64_t num_segments = options.config.bench.num_tokens() / model.routing.segment_length;
  at::manual_seed(options.seed);
  const at::Tensor scores_RE =
      at::randn({num_segments * model.num_moe_layers, model.num_experts}).requires_grad_(true);
  const at::Tensor gradient_RE = at::randn_like(scores_RE);
  SoftTopKReport report;
  std::vector<std::pair<SpeedRow, std::function<void()>>> rows;
  for (const double temperature : temperatures) {
    SpeedRow row;
    row.bench = "softtopk";
    row.labels["temperature"] = fmt::format("{}", temperature);
    const auto add = [&](const std::string& name, const Operator& soft) {
      row.name = name;
      rows.emplace_back(row,
                        [=, budgets = model.budgets] { run_all(soft, scores_RE, gradient_RE, budgets); });
    };
    add("smoe", [=](const at::Tensor& scores, double k) { return exact(scores, k, temperature); });
    add("20 rounds",
        [=](const at::Tensor& scores, double k) { return loop_soft_top_k(scores, k, temperature); });
    report.accuracy.push_back(accuracy_at(temperature, scores_RE, model.budgets));
  }
  // Not beside the matmul: it would empty the caches, and take most of the time.
  SpeedOptions without_peak = options;
  without_peak.measure_peak = false;
  report.speed = measure_rows(rows, without_peak);
  return report;
}

std::string accuracy_table(const SoftTopKReport& report) {
  Table table({"temperature", "error of smoe", "error of 20 rounds"});
  for (const SoftTopKAccuracy& row : report.accuracy) {
    table.add_row({fmt::format("{}", row.temperature), fmt::format("{:.1e}", row.exact_error),
                   fmt::format("{:.1e}", row.loop_error)});
  }
  return table.to_terminal();
}

}  // namespace smoe
