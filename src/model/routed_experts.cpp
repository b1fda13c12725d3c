// Shape legend: N tokens, D model width, E experts, h expert width, Q segments.
#include "smoe/model/routed_experts.h"

#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <stdexcept>

#include "routed_experts_grouped.h"
#include "routed_experts_paths.h"
#include "smoe/core/error.h"
#include "smoe/model/in_place_gradients.h"
#include "smoe/model/segment_layout.h"
#include "smoe/routing/host_to_device.h"

namespace smoe {
namespace {

// The callers are our own layers, so a mismatch is a broken invariant; the message says which.
void check_argument(bool condition, const std::string& message) {
  if (!condition) {
    throw std::logic_error("routed_experts: " + message);
  }
}

void check_tensor(const at::Tensor& tensor, at::IntArrayRef shape, const at::Tensor& x_ND, const char* name) {
  check_argument(tensor.defined(), fmt::format("{} is undefined", name));
  check_argument(tensor.sizes() == shape,
                 fmt::format("{} has shape [{}], expected [{}]", name, fmt::join(tensor.sizes(), ", "),
                             fmt::join(shape, ", ")));
  check_argument(tensor.device() == x_ND.device(),
                 fmt::format("{} is on {}, x on {}", name, tensor.device().str(), x_ND.device().str()));
}

void check_dtype(const at::Tensor& tensor, at::ScalarType expected, const char* name) {
  check_argument(
      tensor.scalar_type() == expected,
      fmt::format("{} is {}, expected {}", name, at::toString(tensor.scalar_type()), at::toString(expected)));
}

void check_ranges(const std::vector<TokenRange>& segments, int64_t num_tokens) {
  int64_t expected_begin = 0;
  for (size_t q = 0; q < segments.size(); ++q) {
    check_argument(
        segments[q].begin == expected_begin && segments[q].end >= segments[q].begin,
        fmt::format("segment {} is [{}, {}), but segments must tile the tokens in order and this one "
                    "must begin at {}",
                    q, segments[q].begin, segments[q].end, expected_begin));
    expected_begin = segments[q].end;
  }
  check_argument(expected_begin == num_tokens,
                 fmt::format("the segments end at token {}, x has {} tokens", expected_begin, num_tokens));
}

void check_tensors(const at::Tensor& x_ND, const ExpertWeights& weights, const at::Tensor& mask_QE,
                   int64_t num_segments) {
  check_argument(x_ND.defined() && x_ND.dim() == 2, "x must be a matrix [N, D]");
  check_argument(weights.gate_EhD.defined() && weights.gate_EhD.dim() == 3, "gate must be [E, h, D]");
  const int64_t dim = x_ND.size(1);
  const int64_t num_experts = weights.gate_EhD.size(0);
  const int64_t expert_dim = weights.gate_EhD.size(1);
  check_argument(dim > 0 && num_experts > 0 && expert_dim > 0, "D, E and h must be positive");
  check_tensor(weights.gate_EhD, {num_experts, expert_dim, dim}, x_ND, "gate");
  check_tensor(weights.up_EhD, {num_experts, expert_dim, dim}, x_ND, "up");
  check_tensor(weights.down_EDh, {num_experts, dim, expert_dim}, x_ND, "down");
  check_tensor(mask_QE, {num_segments, num_experts}, x_ND, "mask");
  const at::ScalarType dtype = x_ND.scalar_type();
  check_argument(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16,
                 fmt::format("x is {}; float32, float64 and bfloat16 are supported", at::toString(dtype)));
  check_argument(dtype != at::kBFloat16 || (dim % 8 == 0 && expert_dim % 8 == 0),
                 fmt::format("D is {} and h is {}; bfloat16 needs multiples of 8", dim, expert_dim));
  check_dtype(weights.gate_EhD, dtype, "gate");
  check_dtype(weights.up_EhD, dtype, "up");
  check_dtype(weights.down_EDh, dtype, "down");
  check_argument(
      mask_QE.scalar_type() == at::kFloat || mask_QE.scalar_type() == dtype,
      fmt::format("mask is {}, expected float32 or the type of x", at::toString(mask_QE.scalar_type())));
}

void check_arguments(const at::Tensor& x_ND, const ExpertWeights& weights, const at::Tensor& mask_QE,
                     const std::vector<TokenRange>& segments) {
  check_tensors(x_ND, weights, mask_QE, static_cast<int64_t>(segments.size()));
  check_ranges(segments, x_ND.size(0));
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Saves its inputs, and gate and up of the selected experts up to `max_kept_bytes`.
class SparseExpertsFunction : public torch::autograd::Function<SparseExpertsFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_ND, const at::Tensor& gate_EhD,
                            const at::Tensor& up_EhD, const at::Tensor& down_EDh, const at::Tensor& mask_QE,
                            const std::vector<TokenRange>& segments, int64_t max_kept_bytes) {
    const at::Tensor ranges_Q2 = make_ranges_tensor(segments);
    const ExpertSchedule schedule = make_expert_schedule(mask_QE, ranges_Q2);
    const ExpertWeights weights{gate_EhD.contiguous(), up_EhD.contiguous(), down_EDh.contiguous()};
    const int64_t activation_bytes = 2 * schedule.total_rows * gate_EhD.size(1) * x_ND.element_size();
    KeptActivations kept;
    const at::Tensor y_ND = routed_experts_cpu_forward(x_ND.contiguous(), weights, schedule,
                                                       activation_bytes <= max_kept_bytes ? &kept : nullptr);
    context->save_for_backward(
        {x_ND, gate_EhD, up_EhD, down_EDh, mask_QE, ranges_Q2, kept.gate_Rh, kept.up_Rh});
    return y_ND;
  }

  static variable_list backward(AutogradContext* context, const variable_list& y_gradients) {
    check_argument(!at::GradMode::is_enabled(),
                   "the sparse path has no second derivative (create_graph is on)");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor x_ND = saved[0].contiguous();
    const ExpertWeights weights{saved[1].contiguous(), saved[2].contiguous(), saved[3].contiguous()};
    const ExpertSchedule schedule = make_expert_schedule(saved[4], saved[5]);
    const NeededGradients needed{.x = context->needs_input_grad(0),
                                 .weights = context->needs_input_grad(1) || context->needs_input_grad(2) ||
                                            context->needs_input_grad(3)};
    const ExpertWeights existing{gradient_to_add_to(saved[1]), gradient_to_add_to(saved[2]),
                                 gradient_to_add_to(saved[3])};
    const bool adds = existing.gate_EhD.defined() && existing.up_EhD.defined() && existing.down_EDh.defined();
    const RoutedExpertGradients gradients =
        routed_experts_cpu_backward(y_gradients[0].contiguous(), x_ND, weights, schedule, saved[4].size(0),
                                    needed, adds ? existing : ExpertWeights{}, {saved[6], saved[7]});
    return {gradients.x_ND,
            gradients.weights.gate_EhD,
            gradients.weights.up_EhD,
            gradients.weights.down_EDh,
            gradients.mask_QE.to(saved[4].scalar_type()),
            at::Tensor(),
            at::Tensor()};
  }
};

// Like the function above, it saves its inputs only.
class GroupedExpertsFunction : public torch::autograd::Function<GroupedExpertsFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_ND, const at::Tensor& gate_EhD,
                            const at::Tensor& up_EhD, const at::Tensor& down_EDh, const at::Tensor& mask_QE,
                            const at::Tensor& selected_QE, const SegmentLayoutPointer& layout) {
    context->save_for_backward({x_ND, gate_EhD, up_EhD, down_EDh, mask_QE, selected_QE});
    context->saved_data["layout"] = at::IValue::make_capsule(layout);
    const ExpertWeights weights{gate_EhD.contiguous(), up_EhD.contiguous(), down_EDh.contiguous()};
    return routed_experts_grouped_forward(x_ND.contiguous(), weights, {mask_QE, selected_QE, *layout});
  }

  static variable_list backward(AutogradContext* context, const variable_list& y_gradients) {
    check_argument(!at::GradMode::is_enabled(),
                   "the grouped path has no second derivative (create_graph is on)");
    const variable_list saved = context->get_saved_variables();
    const auto layout =
        c10::static_intrusive_pointer_cast<SegmentLayout>(context->saved_data["layout"].toCapsule());
    const ExpertWeights weights{saved[1].contiguous(), saved[2].contiguous(), saved[3].contiguous()};
    const NeededGradients needed{.x = context->needs_input_grad(0),
                                 .weights = context->needs_input_grad(1) || context->needs_input_grad(2) ||
                                            context->needs_input_grad(3)};
    const RoutedExpertGradients gradients = routed_experts_grouped_backward(
        y_gradients[0].contiguous(), saved[0].contiguous(), weights, {saved[4], saved[5], *layout}, needed);
    return {gradients.x_ND,
            gradients.weights.gate_EhD,
            gradients.weights.up_EhD,
            gradients.weights.down_EDh,
            gradients.mask_QE.to(saved[4].scalar_type()),
            at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor routed_experts_masked_dense(const at::Tensor& x_ND, const ExpertWeights& weights,
                                       const at::Tensor& mask_QE, const std::vector<TokenRange>& segments) {
  check_arguments(x_ND, weights, mask_QE, segments);
  const int64_t num_experts = weights.gate_EhD.size(0);
  const int64_t expert_dim = weights.gate_EhD.size(1);
  const int64_t dim = x_ND.size(1);
  // The experts side by side are one wide SwiGLU.
  const at::Tensor ranges_Q2 = make_ranges_tensor(segments);
  const at::Tensor count_Q = copy_to_device(ranges_Q2.select(1, 1) - ranges_Q2.select(1, 0), x_ND.device());
  const at::Tensor mask_NE =
      mask_QE.to(x_ND.scalar_type()).repeat_interleave(count_Q, 0, /*output_size=*/x_ND.size(0));
  const at::Tensor gate_Nw = at::linear(x_ND, weights.gate_EhD.reshape({num_experts * expert_dim, dim}));
  const at::Tensor up_Nw = at::linear(x_ND, weights.up_EhD.reshape({num_experts * expert_dim, dim}));
  const at::Tensor hidden_NEh = (at::silu(gate_Nw) * up_Nw).view({-1, num_experts, expert_dim});
  const at::Tensor masked_Nw = (hidden_NEh * mask_NE.unsqueeze(2)).view({-1, num_experts * expert_dim});
  return at::matmul(masked_Nw, weights.down_EDh.transpose(1, 2).reshape({num_experts * expert_dim, dim}));
}

at::Tensor routed_experts_sparse(const at::Tensor& x_ND, const ExpertWeights& weights,
                                 const at::Tensor& mask_QE, const std::vector<TokenRange>& segments,
                                 int64_t max_kept_bytes) {
  check_arguments(x_ND, weights, mask_QE, segments);
  if (x_ND.is_cpu() && x_ND.scalar_type() != at::kBFloat16) {
    // Without a backward there is nobody to keep activations for.
    const bool tracking = at::GradMode::is_enabled() && (x_ND.requires_grad() || mask_QE.requires_grad() ||
                                                         weights.gate_EhD.requires_grad());
    return SparseExpertsFunction::apply(x_ND, weights.gate_EhD, weights.up_EhD, weights.down_EDh, mask_QE,
                                        segments, tracking ? max_kept_bytes : -1);
  }
  // The sizes depend on the mask, which has to come to the host for that.
  const at::Tensor selected_QE = mask_QE.detach().ne(0);
  const auto layout =
      c10::make_intrusive<SegmentLayout>(segments, selected_QE.sum(1).cpu(), x_ND.device(),
                                         default_chunk_rows(x_ND.size(1), x_ND.scalar_type()));
  return GroupedExpertsFunction::apply(x_ND, weights.gate_EhD, weights.up_EhD, weights.down_EDh, mask_QE,
                                       selected_QE, layout);
}

at::Tensor routed_experts_grouped(const at::Tensor& x_ND, const ExpertWeights& weights,
                                  const at::Tensor& mask_QE, const at::Tensor& selected_QE,
                                  const SegmentLayoutPointer& layout) {
  check_tensors(x_ND, weights, mask_QE, layout->num_segments());
  check_tensor(selected_QE, mask_QE.sizes(), x_ND, "selected");
  check_dtype(selected_QE, at::kBool, "selected");
  check_argument(
      layout->num_tokens() == x_ND.size(0),
      fmt::format("the segments end at token {}, x has {} tokens", layout->num_tokens(), x_ND.size(0)));
  return GroupedExpertsFunction::apply(x_ND, weights.gate_EhD, weights.up_EhD, weights.down_EDh, mask_QE,
                                       selected_QE, layout);
}

namespace {

// Activations may always take as much as the weights, whose gradients and moments take several times that.
int64_t kept_bytes_limit(const ExpertWeights& weights) {
  const size_t weight_bytes = weights.gate_EhD.nbytes() + weights.up_EhD.nbytes() + weights.down_EDh.nbytes();
  return std::max(kMaxKeptExpertBytes, static_cast<int64_t>(weight_bytes));
}

}  // namespace

at::Tensor routed_experts(const at::Tensor& x_ND, const ExpertWeights& weights, const at::Tensor& mask_QE,
                          const std::vector<TokenRange>& segments, MaskGradient gradient) {
  switch (gradient) {
    case MaskGradient::kSelected:
      check_arguments(x_ND, weights, mask_QE, segments);
      return routed_experts_sparse(x_ND, weights, mask_QE, segments, kept_bytes_limit(weights));
    case MaskGradient::kAll:
      return routed_experts_masked_dense(x_ND, weights, mask_QE, segments);
  }
  throw std::logic_error("routed_experts: unknown MaskGradient");
}

}  // namespace smoe
