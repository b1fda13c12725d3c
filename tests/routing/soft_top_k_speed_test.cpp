// How long one training step of the paper's 12B model spends in the soft mask. Not a claim that every
// machine can keep, hence disabled: run with --gtest_also_run_disabled_tests --gtest_filter='*Speed*'.
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>

#include "routing_test_support.h"

namespace smoe::testing {
namespace {

// The peers' way: twenty iterations of the dual, differentiated by autograd.
at::Tensor unrolled_soft_top_k(const at::Tensor& scores_RE, double sum, double temperature) {
  at::Tensor shift_R1 = at::zeros({scores_RE.size(0), 1});
  at::Tensor cap_RE = -scores_RE;
  for (int round = 0; round < 20; ++round) {
    shift_R1 = temperature * (std::log(sum) - at::logsumexp((scores_RE + cap_RE) / temperature, 1, true));
    cap_RE = -(scores_RE + shift_R1).clamp_min(0);
  }
  return ((scores_RE + shift_R1 + cap_RE) / temperature).exp();
}

double seconds(const at::Tensor& scores_RE, const std::function<at::Tensor(const at::Tensor&)>& operation) {
  double best = kInfinity;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const at::Tensor leaf_RE = scores_RE.clone().requires_grad_(true);
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor result_RE = operation(leaf_RE);
    torch::autograd::backward({result_RE}, {at::ones_like(result_RE)});
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

TEST(SoftTopKSpeed, DISABLED_BeatsTheUnrolledLoop) {
  // 8192 tokens in segments of 32, 44 layers, 4 budgets; 212 experts.
  const at::Tensor scores_RE = gaussian({45056, 212}, 111);
  const at::Tensor sums_R = sums(45056, 43);
  for (const double temperature : {1.0, 0.1}) {
    const double exact_s = seconds(
        scores_RE, [&](const at::Tensor& leaf_RE) { return soft_top_k(leaf_RE, sums_R, temperature); });
    const double loop_s = seconds(
        scores_RE, [&](const at::Tensor& leaf_RE) { return unrolled_soft_top_k(leaf_RE, 43, temperature); });
    const double sigmoid_s = seconds(scores_RE, [&](const at::Tensor& leaf_RE) {
      return soft_top_k(leaf_RE, sums_R, temperature, SoftTopKKind::kSigmoid);
    });
    std::cout << "temperature " << temperature << ": exact " << exact_s << " s, unrolled loop of 20 "
              << loop_s << " s, sigmoid kind " << sigmoid_s << " s\n";
    EXPECT_LT(exact_s, loop_s);
  }
  const auto start = std::chrono::steady_clock::now();
  hard_top_k(scores_RE, counts(45056, 43));
  std::cout << "hard_top_k "
            << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << " s\n";
}

}  // namespace
}  // namespace smoe::testing
