#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/routing/host_to_device.h"
#include "smoe/routing/routing_plan.h"
#include "smoe/routing/soft_top_k.h"

namespace smoe {
namespace {

// 1 / totals of segments with k > 0, else 0; [Q, 1, 1] like `like`. Each segment's masks are divided by their
// own sums. With one k that is the 1/k^2 of the formula; with several it keeps a large budget from outvoting
// the small ones.
at::Tensor inverse_of_kept(const at::Tensor& totals_Q, const RoutingPlan& plan, const at::Tensor& like) {
  const at::Tensor inverse_Q = at::where(plan.count_Q > 0, 1.0 / totals_Q.to(at::kDouble), 0.0);
  return copy_to_device(inverse_Q.to(like.scalar_type()), like.device()).view({-1, 1, 1});
}

}  // namespace

void SegmentLoad::add(const RoutingPlan& plan) {
  const at::Tensor mask_QLE = plan.mask_QLE.detach().to(at::kFloat);
  const at::Tensor added_LE = (mask_QLE * inverse_of_kept(plan.count_Q, plan, mask_QLE)).sum(0);
  load_LE = load_LE.defined() ? load_LE + added_LE : added_LE;
  num_segments += (plan.count_Q > 0).sum().item<int64_t>();
}

at::Tensor balance_loss(const RoutingPlan& plan, const RoutingConfig& config,
                        const SelectionControls& controls, const SegmentLoad* whole) {
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
  SegmentLoad own;
  if (whole == nullptr) own.add(plan);
  const SegmentLoad& load = whole == nullptr ? own : *whole;
  const double num_segments = std::max<double>(1.0, static_cast<double>(load.num_segments));
  const at::Tensor share_LE = (lambda_QLE * inverse_of_kept(sums_Q, plan, logits_QLE)).sum(0) / num_segments;
  return (load.load_LE / num_segments * share_LE).sum(1).mean() * num_experts;
}

}  // namespace smoe
