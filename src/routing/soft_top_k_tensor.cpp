#include <limits>

#include "smoe/routing/host_to_device.h"
#include "smoe/routing/soft_top_k_solvers.h"

namespace smoe {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// With the scores in descending order, the saturated set is a prefix of length m: the smallest m for which
// the next score stays at or below 1 when the rest shares k - m. Every m is tested at once.
at::Tensor entropy_lambda(const at::Tensor& x_RE, const at::Tensor& sums_R1) {
  const auto [sorted_RE, order_RE] = at::sort(x_RE, /*stable=*/true, /*dim=*/1, /*descending=*/true);
  const at::Tensor rank_E = at::arange(x_RE.size(1), x_RE.options());
  // rest[m] = log sum of exp over the scores from rank m on
  const at::Tensor rest_RE = at::logcumsumexp(sorted_RE.flip(1), 1).flip(1);
  const at::Tensor remainder_RE = (sums_R1 - rank_E).clamp_min(0);
  const at::Tensor shift_RE = remainder_RE.log() - rest_RE;
  // A forbidden score ends the search, and so does a remainder of 0, whose logarithm is -inf.
  const at::Tensor fits_RE = at::logical_or(sorted_RE + shift_RE <= 0, sorted_RE == -kInfinity);
  const at::Tensor num_saturated_R1 =
      at::logical_not(fits_RE).to(at::kLong).cumprod(1).sum(1, /*keepdim=*/true);
  const at::Tensor index_R1 = num_saturated_R1.clamp_max(x_RE.size(1) - 1);
  const at::Tensor shift_R1 = shift_RE.gather(1, index_R1);
  const at::Tensor below_RE = at::where(sorted_RE == -kInfinity, 0.0, (sorted_RE + shift_R1).exp());
  const at::Tensor lambda_sorted_RE = at::where(rank_E < num_saturated_R1, 1.0, below_RE);
  return at::empty_like(x_RE).scatter_(1, order_RE, lambda_sorted_RE);
}

// Halves the bracket until float64 has no more room: a fixed number of rounds, hence no waiting for the
// device.
at::Tensor sigmoid_lambda(const at::Tensor& x_RE, const at::Tensor& sums_R1, const at::Tensor& allowed_R1) {
  constexpr int kRounds = 100;
  const at::Tensor finite_RE = at::where(x_RE == -kInfinity, 0.0, x_RE);
  at::Tensor low_R1 = (sums_R1 / (allowed_R1 - sums_R1)).log();
  at::Tensor high_R1 = low_R1 - finite_RE.amin(1, /*keepdim=*/true);
  for (int round = 0; round < kRounds; ++round) {
    const at::Tensor middle_R1 = low_R1 + (high_R1 - low_R1) / 2;
    const at::Tensor too_low_R1 = (x_RE + middle_R1).sigmoid().sum(1, /*keepdim=*/true) < sums_R1;
    low_R1 = at::where(too_low_R1, middle_R1, low_R1);
    high_R1 = at::where(too_low_R1, high_R1, middle_R1);
  }
  return (x_RE + high_R1).sigmoid();
}

}  // namespace

at::Tensor soft_top_k_forward_tensor(const at::Tensor& scores_RE, const at::Tensor& sums_R,
                                     double temperature, SoftTopKKind kind) {
  if (scores_RE.numel() == 0) return at::zeros_like(scores_RE);
  const at::Tensor scores64_RE = scores_RE.to(at::kDouble);
  const at::Tensor sums_R1 = copy_to_device(sums_R, scores_RE.device()).unsqueeze(1);
  const at::Tensor allowed_RE = scores64_RE > -kInfinity;
  const at::Tensor allowed_R1 = allowed_RE.sum(1, /*keepdim=*/true).to(at::kDouble);
  const at::Tensor x_RE = (scores64_RE - scores64_RE.amax(1, /*keepdim=*/true)) / temperature;
  const at::Tensor lambda_RE = kind == SoftTopKKind::kEntropy ? entropy_lambda(x_RE, sums_R1)
                                                              : sigmoid_lambda(x_RE, sums_R1, allowed_R1);
  // Sums without a finite shift. This also covers rows in which every expert is forbidden (NaN until here).
  const at::Tensor full_RE = at::where(sums_R1 >= allowed_R1, allowed_RE.to(at::kDouble), lambda_RE);
  return at::where(sums_R1 <= 0, 0.0, full_RE).to(scores_RE.scalar_type());
}

at::Tensor soft_top_k_backward_tensor(const at::Tensor& gradient_RE, const at::Tensor& lambda_RE,
                                      double temperature, SoftTopKKind kind) {
  const at::Tensor weight_RE = kind == SoftTopKKind::kEntropy
                                   ? lambda_RE * (lambda_RE < 1).to(lambda_RE.scalar_type())
                                   : lambda_RE * (1 - lambda_RE);
  const at::Tensor total_R1 = weight_RE.sum(1, /*keepdim=*/true, at::kDouble);
  const at::Tensor weighted_R1 = (weight_RE * gradient_RE).sum(1, /*keepdim=*/true, at::kDouble);
  const at::Tensor mean_R1 = at::where(total_R1 > 0, weighted_R1 / total_R1, 0.0).to(lambda_RE.scalar_type());
  return weight_RE * (gradient_RE - mean_R1) / temperature;
}

}  // namespace smoe
