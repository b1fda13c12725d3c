#include "smoe/routing/router_statistics.h"

#include <algorithm>
#include <cmath>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// bool [Q - 1]: segment q + 1 directly follows segment q in the same row.
at::Tensor follows_predecessor(const SegmentMap& segments) {
  const int64_t num_pairs = std::max<int64_t>(segments.num_segments() - 1, 0);
  at::Tensor follows_P = at::empty({num_pairs}, at::kBool);
  bool* const follows = follows_P.mutable_data_ptr<bool>();
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const auto index = static_cast<size_t>(pair);
    follows[pair] = segments.segments[index].row == segments.segments[index + 1].row;
  }
  return follows_P;
}

double sum_of(const at::Tensor& values) { return values.sum(at::kDouble).item<double>(); }

// 0 / 0 counts as 0: nothing was seen.
double ratio(double part, double whole) { return whole > 0 ? part / whole : 0.0; }

}  // namespace

RouterStatistics::RouterStatistics(int64_t num_layers, int64_t num_experts) {
  SMOE_ASSERT(num_layers >= 0 && num_experts >= 1);
  load_LE_ = at::zeros({num_layers, num_experts}, at::kLong);
  normalized_load_LE_ = at::zeros({num_layers, num_experts}, at::kDouble);
  logit_sum_LE_ = at::zeros({num_layers, num_experts}, at::kDouble);
  logit_square_sum_LE_ = at::zeros({num_layers, num_experts}, at::kDouble);
}

void RouterStatistics::reset() { *this = RouterStatistics(load_LE_.size(0), load_LE_.size(1)); }

void RouterStatistics::add(const RoutingPlan& plan, const SegmentMap& segments) {
  const at::NoGradGuard no_gradient;
  const at::Tensor mask_QLE = plan.mask_QLE.detach().cpu();
  const int64_t num_segments = mask_QLE.size(0);
  SMOE_ASSERT(mask_QLE.dim() == 3 && mask_QLE.sizes().slice(1) == load_LE_.sizes());
  SMOE_ASSERT(segments.num_segments() == num_segments && plan.count_Q.size(0) == num_segments);
  if (num_segments == 0) return;
  const at::Tensor count_Q = plan.count_Q.to(at::kDouble);

  load_LE_ += mask_QLE.sum(0).to(at::kLong);
  num_segments_ += num_segments;
  selected_ += sum_of(mask_QLE);
  if (plan.soft_QLE.defined()) {
    saturated_ += sum_of(at::logical_and(plan.soft_QLE.detach().cpu() >= 1, mask_QLE > 0));
    soft_selected_ += sum_of(mask_QLE);
  }

  // Masks scaled to length 1, whose sum gives the mean cosine over all pairs at once.
  const at::Tensor scale_Q11 = at::where(count_Q > 0, count_Q.rsqrt(), 0.0).view({-1, 1, 1});
  normalized_load_LE_ += (mask_QLE * scale_Q11).sum(0);
  num_nonempty_ += (count_Q > 0).sum().item<int64_t>();

  const at::Tensor counted_P = at::logical_and(follows_predecessor(segments), count_Q.slice(0, 1) > 0);
  const at::Tensor shared_P =
      (mask_QLE.slice(0, 1) * mask_QLE.slice(0, 0, num_segments - 1)).sum(2).to(at::kDouble).mean(1);
  overlap_ += sum_of(at::where(counted_P, shared_P / count_Q.slice(0, 1), 0.0));
  overlap_pairs_ += sum_of(counted_P);

  if (plan.logits_QLE.defined()) {
    const at::Tensor logits_QLE = plan.logits_QLE.detach().cpu().to(at::kDouble);
    logit_sum_LE_ += logits_QLE.sum(0);
    logit_square_sum_LE_ += logits_QLE.square().sum(0);
    num_logit_segments_ += num_segments;
  }
}

at::Tensor RouterStatistics::sums() const {
  const at::Tensor counts = at::tensor(
      {static_cast<double>(num_segments_), static_cast<double>(num_nonempty_), selected_, saturated_,
       soft_selected_, overlap_, overlap_pairs_, static_cast<double>(num_logit_segments_)},
      at::kDouble);
  return at::cat({counts, load_LE_.to(at::kDouble).flatten(), normalized_load_LE_.flatten(),
                  logit_sum_LE_.flatten(), logit_square_sum_LE_.flatten()});
}

void RouterStatistics::set_sums(const at::Tensor& sums) {
  const int64_t size = load_LE_.numel();
  constexpr int64_t kNumCounts = 8;
  SMOE_ASSERT(sums.numel() == kNumCounts + 4 * size);
  const double* const count = sums.const_data_ptr<double>();
  num_segments_ = static_cast<int64_t>(count[0]);
  num_nonempty_ = static_cast<int64_t>(count[1]);
  selected_ = count[2];
  saturated_ = count[3];
  soft_selected_ = count[4];
  overlap_ = count[5];
  overlap_pairs_ = count[6];
  num_logit_segments_ = static_cast<int64_t>(count[7]);
  int64_t offset = kNumCounts;
  for (at::Tensor* tensor_LE : {&load_LE_, &normalized_load_LE_, &logit_sum_LE_, &logit_square_sum_LE_}) {
    tensor_LE->copy_(sums.narrow(0, offset, size).view(tensor_LE->sizes()));
    offset += size;
  }
}

RouterPanel RouterStatistics::panel() const {
  RouterPanel panel;
  const int64_t num_experts = load_LE_.size(1);
  if (load_LE_.size(0) == 0 || num_segments_ == 0) return panel;
  if (selected_ > 0) {
    const at::Tensor load_LE = load_LE_.to(at::kDouble);
    const at::Tensor share_LE = load_LE / load_LE.sum(1, /*keepdim=*/true);
    const at::Tensor entropy_L = -at::xlogy(share_LE, share_LE).sum(1);
    panel.load_entropy =
        num_experts > 1 ? entropy_L.mean().item<double>() / std::log(static_cast<double>(num_experts)) : 1.0;
    panel.max_violation = (share_LE.amax(1) * num_experts - 1).max().item<double>();
  }
  panel.dead_expert_share = (load_LE_ == 0).to(at::kDouble).mean().item<double>();
  panel.saturated_share = ratio(saturated_, soft_selected_);
  panel.neighbor_overlap = ratio(overlap_, overlap_pairs_);
  if (num_nonempty_ > 1) {
    const double num = static_cast<double>(num_nonempty_);
    const double squares = normalized_load_LE_.square().sum(1).mean().item<double>();
    panel.random_pair_cosine = (squares - num) / (num * (num - 1));
  }
  if (num_logit_segments_ > 0) {
    const double num = static_cast<double>(num_logit_segments_);
    const at::Tensor mean_LE = logit_sum_LE_ / num;
    const at::Tensor deviation_LE = (logit_square_sum_LE_ / num - mean_LE.square()).clamp_min(0).sqrt();
    // Experts that were ever forbidden (-inf) have no standard deviation.
    panel.logit_std = deviation_LE.masked_select(at::isfinite(mean_LE)).mean().nan_to_num().item<double>();
  }
  return panel;
}

double nesting_ratio(const at::Tensor& smaller_QLE, const at::Tensor& larger_QLE) {
  SMOE_ASSERT(smaller_QLE.dim() == 3 && smaller_QLE.sizes() == larger_QLE.sizes());
  const at::NoGradGuard no_gradient;
  const at::Tensor size_QL = smaller_QLE.detach().to(at::kDouble).sum(2);
  const at::Tensor shared_QL = (smaller_QLE.detach() * larger_QLE.detach()).to(at::kDouble).sum(2);
  const at::Tensor counted_QL = size_QL > 0;
  const double num_counted = sum_of(counted_QL);
  // An empty mask is nested in everything.
  return num_counted > 0 ? sum_of(at::where(counted_QL, shared_QL / size_QL, 0.0)) / num_counted : 1.0;
}

at::Tensor updated_selection_bias(const at::Tensor& bias_LE, const at::Tensor& load_LE, double rate) {
  SMOE_ASSERT(bias_LE.dim() == 2 && bias_LE.sizes() == load_LE.sizes());
  const at::NoGradGuard no_gradient;
  const at::Tensor load64_LE = load_LE.to(bias_LE.device(), at::kDouble);
  const at::Tensor step_LE = (load64_LE.mean(1, /*keepdim=*/true) - load64_LE).sign() * rate;
  const at::Tensor moved_LE = bias_LE.detach().to(at::kDouble) + step_LE;
  return (moved_LE - moved_LE.mean(1, /*keepdim=*/true)).to(bias_LE.scalar_type());
}

}  // namespace smoe
