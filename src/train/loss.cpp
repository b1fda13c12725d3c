#include "smoe/train/loss.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The scalars of one call; autograd passes them through untouched.
struct HeadPass {
  double z_loss_weight;
  int64_t chunk_tokens;
  bool wants_hidden_gradient;
  bool wants_weight_gradient;
};

struct HeadResult {
  at::Tensor loss;
  at::Tensor cross_entropy_N;
  at::Tensor hidden_gradient_ND;  // undefined unless wanted
  at::Tensor weight_gradient_VD;  // undefined unless wanted
};

// Turns the logits of a chunk into the gradient of the loss with respect to them, in place: a second
// buffer of the same size would double the peak memory of training.
void logits_to_gradient(at::Tensor& logits_CV, const at::Tensor& log_sum_C, const at::Tensor& targets_C,
                        const at::Tensor& weights_C, double z_loss_weight) {
  logits_CV.sub_(log_sum_C.unsqueeze(1)).exp_();
  const at::Tensor factor_C =
      z_loss_weight == 0.0 ? weights_C : weights_C * (1.0 + 2.0 * z_loss_weight * log_sum_C);
  logits_CV.mul_(factor_C.unsqueeze(1));
  logits_CV.scatter_add_(1, targets_C.unsqueeze(1), -weights_C.unsqueeze(1));
}

HeadResult run_head(const at::Tensor& hidden_ND, const at::Tensor& weight_VD, const at::Tensor& targets_N,
                    const at::Tensor& weights_N, const HeadPass& pass) {
  const at::ScalarType sum_type = hidden_ND.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t num_tokens = hidden_ND.size(0);
  HeadResult result;
  result.loss = at::zeros({}, hidden_ND.options().dtype(sum_type));
  result.cross_entropy_N = at::zeros({num_tokens}, hidden_ND.options().dtype(sum_type));
  if (pass.wants_hidden_gradient) result.hidden_gradient_ND = at::zeros_like(hidden_ND);
  if (pass.wants_weight_gradient) result.weight_gradient_VD = at::zeros_like(weight_VD);
  for (int64_t begin = 0; begin < num_tokens; begin += pass.chunk_tokens) {
    const int64_t size = std::min(pass.chunk_tokens, num_tokens - begin);
    const at::Tensor hidden_CD = hidden_ND.narrow(0, begin, size);
    const at::Tensor targets_C = targets_N.narrow(0, begin, size);
    const at::Tensor weights_C = weights_N.narrow(0, begin, size).to(sum_type);
    at::Tensor logits_CV = at::mm(hidden_CD, weight_VD.t()).to(sum_type);
    const at::Tensor log_sum_C = at::logsumexp(logits_CV, 1);
    const at::Tensor cross_entropy_C = log_sum_C - logits_CV.gather(1, targets_C.unsqueeze(1)).squeeze(1);
    at::Tensor penalized_C = cross_entropy_C;
    if (pass.z_loss_weight != 0.0) penalized_C = cross_entropy_C + pass.z_loss_weight * log_sum_C.square();
    result.loss.add_(at::dot(weights_C, penalized_C));
    result.cross_entropy_N.narrow(0, begin, size).copy_(cross_entropy_C);
    if (!pass.wants_hidden_gradient && !pass.wants_weight_gradient) continue;
    logits_to_gradient(logits_CV, log_sum_C, targets_C, weights_C, pass.z_loss_weight);
    const at::Tensor gradient_CV = logits_CV.to(hidden_ND.scalar_type());
    if (pass.wants_hidden_gradient) {
      at::Tensor slot_CD = result.hidden_gradient_ND.narrow(0, begin, size);
      at::mm_out(slot_CD, gradient_CV, weight_VD);
    }
    if (pass.wants_weight_gradient) result.weight_gradient_VD.addmm_(gradient_CV.t(), hidden_CD);
  }
  return result;
}

// The gradient of the loss is usually exactly 1; copying a [V, D] tensor to multiply it by 1 would be waste.
at::Tensor scaled(const at::Tensor& gradient, const at::Tensor& factor) {
  if (!gradient.defined()) return {};
  if (factor.device().is_cpu() && factor.item<double>() == 1.0) return gradient;
  return gradient * factor;
}

class HeadCrossEntropy : public torch::autograd::Function<HeadCrossEntropy> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& hidden_ND,
                               const at::Tensor& weight_VD, const at::Tensor& targets_N,
                               const at::Tensor& weights_N, const HeadPass& pass) {
    HeadResult result = run_head(hidden_ND, weight_VD, targets_N, weights_N, pass);
    context->save_for_backward({result.hidden_gradient_ND, result.weight_gradient_VD});
    context->mark_non_differentiable({result.cross_entropy_N});
    return {result.loss, result.cross_entropy_N};
  }

  static variable_list backward(AutogradContext* context, variable_list output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& factor = output_gradients[0];
    return {scaled(saved[0], factor), scaled(saved[1], factor), {}, {}, {}};
  }
};

}  // namespace

HeadLoss head_cross_entropy(const at::Tensor& hidden_ND, const at::Tensor& weight_VD,
                            const at::Tensor& targets_N, const at::Tensor& weights_N,
                            const HeadLossOptions& options) {
  SMOE_ASSERT(hidden_ND.dim() == 2 && weight_VD.dim() == 2 && hidden_ND.size(1) == weight_VD.size(1));
  SMOE_ASSERT(targets_N.dim() == 1 && targets_N.size(0) == hidden_ND.size(0));
  SMOE_ASSERT(weights_N.sizes() == targets_N.sizes() && options.chunk_tokens > 0);
  // Tokens that are no targets need no logits: with SFT masks and padding that is most of the work.
  const at::Tensor index_M = at::nonzero(weights_N).squeeze(1);
  const bool all_targets = index_M.size(0) == hidden_ND.size(0);
  const auto select = [&](const at::Tensor& all) { return all_targets ? all : all.index_select(0, index_M); };
  const bool tracking = at::GradMode::is_enabled();
  const HeadPass pass{options.z_loss_weight, options.chunk_tokens, tracking && hidden_ND.requires_grad(),
                      tracking && weight_VD.requires_grad()};
  const variable_list outputs =
      HeadCrossEntropy::apply(select(hidden_ND), weight_VD, select(targets_N), select(weights_N), pass);
  if (all_targets) return {outputs[0], outputs[1]};
  at::Tensor cross_entropy_N = at::zeros({hidden_ND.size(0)}, outputs[1].options());
  return {outputs[0], cross_entropy_N.index_copy_(0, index_M, outputs[1].detach())};
}

}  // namespace smoe
