#include "smoe/train/loss.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "cross_entropy_kernels.h"
#include "head_log_sums.h"
#include "smoe/core/error.h"
#include "smoe/routing/host_to_device.h"

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

  bool wants_gradient() const { return wants_hidden_gradient || wants_weight_gradient; }
};

struct HeadResult {
  at::Tensor loss;
  at::Tensor cross_entropy_N;
  at::Tensor hidden_gradient_ND;  // undefined unless wanted
  at::Tensor weight_gradient_VD;  // undefined unless wanted
};

// The tokens of a chunk: their targets and weights, and where their losses go.
struct ChunkTargets {
  at::Tensor targets_C;
  at::Tensor weights_C;  // in the type of the sums
  at::Tensor cross_entropy_C;
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

// Logits on a device: LibTorch's operators. Returns the chunk's part of the loss; the logits become their
// gradient if it is wanted.
at::Tensor chunk_loss_by_operators(at::Tensor& logits_CV, const ChunkTargets& chunk, const HeadPass& pass) {
  const at::Tensor log_sum_C = at::logsumexp(logits_CV, 1);
  const at::Tensor target_logit_C = logits_CV.gather(1, chunk.targets_C.unsqueeze(1)).squeeze(1);
  chunk.cross_entropy_C.copy_(log_sum_C - target_logit_C);
  at::Tensor penalized_C = chunk.cross_entropy_C;
  if (pass.z_loss_weight != 0.0) penalized_C = penalized_C + pass.z_loss_weight * log_sum_C.square();
  if (pass.wants_gradient()) {
    logits_to_gradient(logits_CV, log_sum_C, chunk.targets_C, chunk.weights_C, pass.z_loss_weight);
  }
  return at::dot(chunk.weights_C, penalized_C);
}

// The same on the CPU, a token at a time: the operators would read and write all logits six times.
at::Tensor chunk_loss_by_rows(at::Tensor& logits_CV, const ChunkTargets& chunk, const HeadPass& pass) {
  const at::Tensor targets_C = chunk.targets_C.contiguous();
  const at::Tensor weights_C = chunk.weights_C.to(at::kDouble);
  const at::Tensor penalized_C = at::empty_like(weights_C);
  const int64_t vocab_size = logits_CV.size(1);
  AT_DISPATCH_FLOATING_TYPES(logits_CV.scalar_type(), "head_cross_entropy", [&] {
    auto* logits = logits_CV.mutable_data_ptr<scalar_t>();
    auto* cross_entropies = chunk.cross_entropy_C.mutable_data_ptr<scalar_t>();
    const double* weights = weights_C.const_data_ptr<double>();
    const int64_t* targets = targets_C.const_data_ptr<int64_t>();
    double* penalized = penalized_C.mutable_data_ptr<double>();
    at::parallel_for(0, logits_CV.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const TokenTarget target{targets[row], weights[row], pass.z_loss_weight};
        const TokenLoss loss =
            token_cross_entropy(logits + row * vocab_size, vocab_size, target, pass.wants_gradient());
        cross_entropies[row] = static_cast<scalar_t>(loss.cross_entropy);
        penalized[row] = loss.cross_entropy + pass.z_loss_weight * loss.log_sum * loss.log_sum;
      }
    });
  });
  return at::dot(weights_C, penalized_C);
}

// Where targets lie outside the vocabulary, LibTorch's operators say so; loops would read elsewhere.
void check_targets(const at::Tensor& targets_N, int64_t vocab_size) {
  if (targets_N.numel() == 0 || !targets_N.is_cpu()) return;
  SMOE_ASSERT(targets_N.min().item<int64_t>() >= 0 && targets_N.max().item<int64_t>() < vocab_size);
}

// total += left * right. In bfloat16 the product of a chunk is rounded, the sum over chunks is float32.
void add_product(at::Tensor& total, const at::Tensor& left, const at::Tensor& right) {
  if (left.scalar_type() == at::kBFloat16) {
    const at::Tensor product = at::mm(left, right);
    total = total.defined() ? total.add_(product) : product.to(at::kFloat);
  } else if (total.defined()) {
    total.addmm_(left, right);
  } else {
    total = at::mm(left, right);
  }
}

// Without gradients no token's logits are needed whole.
HeadResult run_head_without_gradients(const at::Tensor& hidden_ND, const at::Tensor& weight_VD,
                                      const at::Tensor& targets_N, const at::Tensor& weights_N,
                                      double z_loss_weight) {
  const auto [log_sum_N, target_logit_N] = head_log_sums(hidden_ND, weight_VD, targets_N);
  const at::Tensor cross_entropy_N = log_sum_N - target_logit_N;
  const at::Tensor penalized_N =
      z_loss_weight == 0.0 ? cross_entropy_N : cross_entropy_N + z_loss_weight * log_sum_N.square();
  const at::ScalarType type = hidden_ND.scalar_type();
  return {at::dot(weights_N.to(at::kDouble), penalized_N).to(type), cross_entropy_N.to(type), {}, {}};
}

HeadResult run_head(const at::Tensor& hidden_ND, const at::Tensor& weight_VD, const at::Tensor& targets_N,
                    const at::Tensor& weights_N, const HeadPass& pass) {
  RECORD_USER_SCOPE("smoe::head and loss");
  const at::ScalarType sum_type = hidden_ND.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t num_tokens = hidden_ND.size(0);
  check_targets(targets_N, weight_VD.size(0));
  if (hidden_ND.is_cpu() && !pass.wants_gradient() && hidden_ND.scalar_type() != at::kBFloat16) {
    return run_head_without_gradients(hidden_ND, weight_VD, targets_N, weights_N, pass.z_loss_weight);
  }
  const auto chunk_loss = hidden_ND.is_cpu() ? chunk_loss_by_rows : chunk_loss_by_operators;
  HeadResult result;
  at::Tensor total = at::zeros({}, hidden_ND.options().dtype(hidden_ND.is_cpu() ? at::kDouble : sum_type));
  result.cross_entropy_N = at::zeros({num_tokens}, hidden_ND.options().dtype(sum_type));
  if (pass.wants_hidden_gradient) result.hidden_gradient_ND = at::empty_like(hidden_ND);
  for (int64_t begin = 0; begin < num_tokens; begin += pass.chunk_tokens) {
    const int64_t size = std::min(pass.chunk_tokens, num_tokens - begin);
    const at::Tensor hidden_CD = hidden_ND.narrow(0, begin, size);
    at::Tensor logits_CV = at::mm(hidden_CD, weight_VD.t()).to(sum_type);
    const ChunkTargets chunk{targets_N.narrow(0, begin, size), weights_N.narrow(0, begin, size).to(sum_type),
                             result.cross_entropy_N.narrow(0, begin, size)};
    total.add_(chunk_loss(logits_CV, chunk, pass));
    if (!pass.wants_gradient()) continue;
    const at::Tensor gradient_CV = logits_CV.to(hidden_ND.scalar_type());
    if (pass.wants_hidden_gradient) {
      at::Tensor slot_CD = result.hidden_gradient_ND.narrow(0, begin, size);
      at::mm_out(slot_CD, gradient_CV, weight_VD);
    }
    if (pass.wants_weight_gradient) add_product(result.weight_gradient_VD, gradient_CV.t(), hidden_CD);
  }
  if (pass.wants_weight_gradient && num_tokens == 0) result.weight_gradient_VD = at::zeros_like(weight_VD);
  result.loss = total.to(sum_type);
  return result;
}

// The gradient of the loss is usually exactly 1; copying a [V, D] tensor to multiply it by 1 would be waste.
at::Tensor scaled(const at::Tensor& gradient, const at::Tensor& factor) {
  if (!gradient.defined()) return {};
  if (factor.device().is_cpu()) return factor.item<double>() == 1.0 ? gradient : gradient * factor;
  // Looking at a GPU's factor would mean to wait for it. In place: the gradient is not used again.
  return at::Tensor(gradient).mul_(factor);
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
  const at::Device device = hidden_ND.device();
  const at::Tensor index_M = at::nonzero(weights_N).squeeze(1);
  const bool all_targets = index_M.size(0) == hidden_ND.size(0);
  const at::Tensor device_index_M = all_targets ? at::Tensor() : copy_to_device(index_M, device);
  const auto select = [&](const at::Tensor& all) {
    if (all_targets) return copy_to_device(all, device);
    if (all.device() != device) return copy_to_device(all.index_select(0, index_M), device);
    return all.index_select(0, device_index_M);
  };
  const bool tracking = at::GradMode::is_enabled();
  const HeadPass pass{options.z_loss_weight, options.chunk_tokens, tracking && hidden_ND.requires_grad(),
                      tracking && weight_VD.requires_grad()};
  const variable_list outputs =
      HeadCrossEntropy::apply(select(hidden_ND), weight_VD, select(targets_N), select(weights_N), pass);
  if (all_targets) return {outputs[0], outputs[1]};
  at::Tensor cross_entropy_N = at::zeros({hidden_ND.size(0)}, outputs[1].options());
  return {outputs[0], cross_entropy_N.index_copy_(0, device_index_M, outputs[1].detach())};
}

}  // namespace smoe
