// Shape legend: N tokens, D model width, E experts, h expert width, Q segments.
#include "smoe/model/routed_experts.h"

#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

#include "routed_experts_paths.h"
#include "smoe/core/error.h"

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
  check_argument(tensor.scalar_type() == expected,
                 fmt::format("{} is {}, expected {} as x", name, at::toString(tensor.scalar_type()),
                             at::toString(expected)));
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

void check_arguments(const at::Tensor& x_ND, const ExpertWeights& weights, const at::Tensor& mask_QE,
                     const std::vector<TokenRange>& segments) {
  check_argument(x_ND.defined() && x_ND.dim() == 2, "x must be a matrix [N, D]");
  check_argument(weights.gate_EhD.defined() && weights.gate_EhD.dim() == 3, "gate must be [E, h, D]");
  const int64_t dim = x_ND.size(1);
  const int64_t num_experts = weights.gate_EhD.size(0);
  const int64_t expert_dim = weights.gate_EhD.size(1);
  check_argument(dim > 0 && num_experts > 0 && expert_dim > 0, "D, E and h must be positive");
  check_tensor(weights.gate_EhD, {num_experts, expert_dim, dim}, x_ND, "gate");
  check_tensor(weights.up_EhD, {num_experts, expert_dim, dim}, x_ND, "up");
  check_tensor(weights.down_EDh, {num_experts, dim, expert_dim}, x_ND, "down");
  check_tensor(mask_QE, {static_cast<int64_t>(segments.size()), num_experts}, x_ND, "mask");
  const at::ScalarType dtype = x_ND.scalar_type();
  const bool is_supported =
      dtype == at::kFloat || (x_ND.is_cpu() ? dtype == at::kDouble : dtype == at::kBFloat16);
  check_argument(is_supported,
                 fmt::format("x is {} on {}; float32 is supported, float64 on the CPU, bfloat16 on CUDA",
                             at::toString(dtype), x_ND.device().str()));
  check_dtype(weights.gate_EhD, dtype, "gate");
  check_dtype(weights.up_EhD, dtype, "up");
  check_dtype(weights.down_EDh, dtype, "down");
  check_argument(
      mask_QE.scalar_type() == at::kFloat || mask_QE.scalar_type() == dtype,
      fmt::format("mask is {}, expected float32 or the type of x", at::toString(mask_QE.scalar_type())));
  check_ranges(segments, x_ND.size(0));
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Saves its inputs and nothing that grows with the number of selected experts.
class SparseExpertsFunction : public torch::autograd::Function<SparseExpertsFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_ND, const at::Tensor& gate_EhD,
                            const at::Tensor& up_EhD, const at::Tensor& down_EDh, const at::Tensor& mask_QE,
                            const std::vector<TokenRange>& segments) {
    const at::Tensor ranges_Q2 = make_ranges_tensor(segments);
    // On CUDA this waits for the mask: what is computed depends on it.
    const at::Tensor host_mask_QE = mask_QE.cpu();
    context->save_for_backward({x_ND, gate_EhD, up_EhD, down_EDh, host_mask_QE, ranges_Q2});
    context->saved_data["mask_type"] = static_cast<int64_t>(mask_QE.scalar_type());
    const ExpertSchedule schedule = make_expert_schedule(host_mask_QE, ranges_Q2);
    const ExpertWeights weights{gate_EhD.contiguous(), up_EhD.contiguous(), down_EDh.contiguous()};
    const auto run = x_ND.is_cpu() ? routed_experts_cpu_forward : routed_experts_grouped_forward;
    return run(x_ND.contiguous(), weights, schedule);
  }

  static variable_list backward(AutogradContext* context, const variable_list& y_gradients) {
    check_argument(!at::GradMode::is_enabled(),
                   "the sparse path has no second derivative (create_graph is on)");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor x_ND = saved[0].contiguous();
    const ExpertWeights weights{saved[1].contiguous(), saved[2].contiguous(), saved[3].contiguous()};
    const ExpertSchedule schedule = make_expert_schedule(saved[4], saved[5]);
    const auto mask_type = static_cast<at::ScalarType>(context->saved_data["mask_type"].toInt());

    const NeededGradients needed{.x = context->needs_input_grad(0),
                                 .weights = context->needs_input_grad(1) || context->needs_input_grad(2) ||
                                            context->needs_input_grad(3)};
    const auto run = x_ND.is_cpu() ? routed_experts_cpu_backward : routed_experts_grouped_backward;
    const RoutedExpertGradients gradients =
        run(y_gradients[0].contiguous(), x_ND, weights, schedule, saved[4].size(0), needed);
    return {gradients.x_ND,
            gradients.weights.gate_EhD,
            gradients.weights.up_EhD,
            gradients.weights.down_EDh,
            gradients.mask_QE.to(mask_type),
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
  const at::Tensor count_Q = (ranges_Q2.select(1, 1) - ranges_Q2.select(1, 0)).to(x_ND.device());
  const at::Tensor mask_NE = mask_QE.to(x_ND.scalar_type()).repeat_interleave(count_Q, 0);
  const at::Tensor gate_Nw = at::linear(x_ND, weights.gate_EhD.reshape({num_experts * expert_dim, dim}));
  const at::Tensor up_Nw = at::linear(x_ND, weights.up_EhD.reshape({num_experts * expert_dim, dim}));
  const at::Tensor hidden_NEh = (at::silu(gate_Nw) * up_Nw).view({-1, num_experts, expert_dim});
  const at::Tensor masked_Nw = (hidden_NEh * mask_NE.unsqueeze(2)).view({-1, num_experts * expert_dim});
  return at::matmul(masked_Nw, weights.down_EDh.transpose(1, 2).reshape({num_experts * expert_dim, dim}));
}

at::Tensor routed_experts_sparse(const at::Tensor& x_ND, const ExpertWeights& weights,
                                 const at::Tensor& mask_QE, const std::vector<TokenRange>& segments) {
  check_arguments(x_ND, weights, mask_QE, segments);
  return SparseExpertsFunction::apply(x_ND, weights.gate_EhD, weights.up_EhD, weights.down_EDh, mask_QE,
                                      segments);
}

at::Tensor routed_experts(const at::Tensor& x_ND, const ExpertWeights& weights, const at::Tensor& mask_QE,
                          const std::vector<TokenRange>& segments, MaskGradient gradient) {
  switch (gradient) {
    case MaskGradient::kSelected:
      return routed_experts_sparse(x_ND, weights, mask_QE, segments);
    case MaskGradient::kAll:
      return routed_experts_masked_dense(x_ND, weights, mask_QE, segments);
  }
  throw std::logic_error("routed_experts: unknown MaskGradient");
}

}  // namespace smoe
