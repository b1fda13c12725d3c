#include <torch/csrc/autograd/autograd.h>

#include "routing_test_support.h"
#include "smoe/routing/routing_plan.h"

namespace smoe::testing {
namespace {

// The selected load is a constant of the gradient, so that the mask stays while the logits move.
double loss_at(const at::Tensor& logits_QLE, RoutingPlan plan, const RoutingConfig& config,
               const SelectionControls& controls) {
  plan.logits_QLE = logits_QLE;
  return balance_loss(plan, config, controls).item<double>();
}

TEST(BalanceLossGradient, EqualsFiniteDifferences) {
  for (const SoftTopKKind kind : {SoftTopKKind::kEntropy, SoftTopKKind::kSigmoid}) {
    RoutingConfig config;
    config.soft_top_k.kind = kind;
    config.soft_top_k.soft_budget_scale = 1.1;
    SelectionControls controls;
    controls.temperature = 0.7;
    const at::Tensor logits_QLE = gaussian({4, 2, 6}, 93, at::kDouble);
    const at::Tensor count_Q = at::tensor({2, 3, 0, 1}, at::kLong);
    RoutingPlan plan = make_routing_plan(logits_QLE.to(at::kFloat), count_Q, config, controls);
    const at::Tensor leaf_QLE = logits_QLE.clone().requires_grad_(true);
    plan.logits_QLE = leaf_QLE;
    torch::autograd::backward({balance_loss(plan, config, controls)}, {});

    const double step = 1e-6;
    for (int64_t i = 0; i < logits_QLE.numel(); ++i) {
      at::Tensor up_QLE = logits_QLE.clone();
      at::Tensor down_QLE = logits_QLE.clone();
      up_QLE.view(-1)[i] += step;
      down_QLE.view(-1)[i] -= step;
      const double quotient =
          (loss_at(up_QLE, plan, config, controls) - loss_at(down_QLE, plan, config, controls)) / (2 * step);
      EXPECT_NEAR(leaf_QLE.grad().view(-1)[i].item<double>(), quotient, 1e-8) << "logit " << i;
    }
  }
}

TEST(BalanceLossGradient, PushesAnOverloadedExpertDown) {
  at::Tensor logits_QLE = gaussian({40, 1, 8}, 94) * 0.3;
  logits_QLE.select(2, 2).add_(1.0);
  const at::Tensor leaf_QLE = logits_QLE.clone().requires_grad_(true);
  const RoutingPlan plan = make_routing_plan(leaf_QLE, counts(40, 2), {}, {});
  torch::autograd::backward({balance_loss(plan, {}, {})}, {});
  EXPECT_GT(leaf_QLE.grad().select(2, 2).sum().item<double>(), 0);
}

}  // namespace
}  // namespace smoe::testing
