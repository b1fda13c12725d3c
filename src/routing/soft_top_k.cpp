#include "smoe/routing/soft_top_k.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "score_checks.h"
#include "smoe/core/error.h"
#include "smoe/routing/soft_top_k_solvers.h"

namespace smoe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Only lambda is kept for the backward: the unsaturated set can be read off it.
class SoftTopKFunction : public torch::autograd::Function<SoftTopKFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores_RE, const at::Tensor& sums_R,
                            double temperature, SoftTopKKind kind) {
    RECORD_USER_SCOPE("smoe::soft top-k");
    const at::Tensor lambda_RE = scores_RE.is_cpu()
                                     ? soft_top_k_forward_rows(scores_RE, sums_R, temperature, kind)
                                     : soft_top_k_forward_tensor(scores_RE, sums_R, temperature, kind);
    context->save_for_backward({lambda_RE});
    context->saved_data["temperature"] = temperature;
    context->saved_data["sigmoid"] = kind == SoftTopKKind::kSigmoid;
    return lambda_RE;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_USER_SCOPE("smoe::soft top-k");
    SMOE_CHECK(NumericError, !at::GradMode::is_enabled(),
               "soft_top_k has a first derivative only: call backward without create_graph");
    const at::Tensor lambda_RE = context->get_saved_variables().at(0);
    const double temperature = context->saved_data["temperature"].toDouble();
    const SoftTopKKind kind =
        context->saved_data["sigmoid"].toBool() ? SoftTopKKind::kSigmoid : SoftTopKKind::kEntropy;
    const at::Tensor gradient_RE =
        lambda_RE.is_cpu() ? soft_top_k_backward_rows(gradients[0], lambda_RE, temperature, kind)
                           : soft_top_k_backward_tensor(gradients[0], lambda_RE, temperature, kind);
    return {gradient_RE, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// As a custom function and not as hard + (soft - soft.detach()): that sum is only nearly `hard` in floating
// point, and a mask entry of 1e-8 instead of 0 would make the sparse path compute an unselected expert.
class StraightThroughFunction : public torch::autograd::Function<StraightThroughFunction> {
 public:
  static at::Tensor forward(AutogradContext*, const at::Tensor& hard, const at::Tensor&) {
    return hard.clone();
  }

  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {at::Tensor(), gradients[0]};
  }
};

}  // namespace

at::Tensor soft_top_k(const at::Tensor& scores_RE, const at::Tensor& sums_R, double temperature,
                      SoftTopKKind kind) {
  SMOE_CHECK(NumericError, temperature > 0 && std::isfinite(temperature),
             "soft_top_k: the temperature is {}; it must be a positive number", temperature);
  check_scores(scores_RE, sums_R, "soft_top_k");
  return SoftTopKFunction::apply(scores_RE, sums_R, temperature, kind);
}

at::Tensor straight_through(const at::Tensor& hard, const at::Tensor& soft) {
  SMOE_ASSERT(hard.sizes() == soft.sizes() && hard.scalar_type() == soft.scalar_type());
  return StraightThroughFunction::apply(hard, soft);
}

}  // namespace smoe
