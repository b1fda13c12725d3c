#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/routing/routing_plan.h"
#include "smoe/routing/soft_top_k.h"

namespace smoe {

at::Tensor balance_loss(const RoutingPlan& plan, const RoutingConfig& config,
                        const SelectionControls& controls) {
  SMOE_CHECK(
      ConfigError, plan.logits_QLE.defined(),
      "routing.balance.kind is loss, but routing.mask_source gives masks without logits, which no loss can "
      "balance. Set balance.kind to none, or mask_source to learned");
  const at::Tensor& logits_QLE = plan.logits_QLE;
  const int64_t num_experts = logits_QLE.size(2);
  const at::Tensor sums_Q = (plan.count_Q.to(at::kDouble) * config.soft_top_k.soft_budget_scale)
                                .clamp_max(static_cast<double>(num_experts));
  const at::Tensor lambda_QLE =
      soft_top_k(logits_QLE.reshape({-1, num_experts}), sums_Q.repeat_interleave(logits_QLE.size(1)),
                 controls.temperature, config.soft_top_k.kind)
          .reshape(logits_QLE.sizes());
  // Each segment's masks are divided by their own sums. With one k that is the 1/k^2 of the formula; with
  // several it keeps a large budget from outvoting the small ones.
  const at::Tensor kept_Q = plan.count_Q > 0;
  const double num_kept = std::max<double>(1.0, static_cast<double>(kept_Q.sum().item<int64_t>()));
  const auto weights = [&](const at::Tensor& totals_Q) {
    return at::where(kept_Q, 1.0 / (totals_Q.to(at::kDouble) * num_kept), 0.0)
        .to(logits_QLE.options())
        .view({-1, 1, 1});
  };
  const at::Tensor load_LE =
      (plan.mask_QLE.detach().to(logits_QLE.scalar_type()) * weights(plan.count_Q)).sum(0);
  const at::Tensor share_LE = (lambda_QLE * weights(sums_Q)).sum(0);
  return (load_LE * share_LE).sum(1).mean() * num_experts;
}

}  // namespace smoe
