#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include "projections.h"
#include "smoe/core/error.h"
#include "smoe/model/in_place_gradients.h"
#include "swiglu_kernels.h"

namespace smoe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kValuesPerTask = int64_t{1} << 14;

at::Tensor flat(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor with_last(const at::Tensor& flat_x, const at::Tensor& like) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes.back() = flat_x.size(1);
  return flat_x.view(sizes);
}

// output_gradient^T * input: added to what the weight has already, or else returned.
at::Tensor weight_gradient(const at::Tensor& weight_FD, const at::Tensor& output_gradient_NF,
                           const at::Tensor& input_ND) {
  at::Tensor sum_FD = gradient_to_add_to(weight_FD);
  if (!sum_FD.defined()) return at::mm(output_gradient_NF.t(), input_ND);
  sum_FD.addmm_(output_gradient_NF.t(), input_ND);
  return {};
}

class ProjectFunction : public torch::autograd::Function<ProjectFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights) {
    RECORD_USER_SCOPE("smoe::projections forward");
    const at::Tensor x_ND = flat(x);
    variable_list saved = {x_ND};
    variable_list outputs;
    for (const at::Tensor& weight_FD : weights) {
      outputs.push_back(with_last(at::mm(x_ND, weight_FD.t()), x));
      saved.push_back(weight_FD);
    }
    context->save_for_backward(std::move(saved));
    context->saved_data["sizes"] = x.sizes().vec();
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    RECORD_USER_SCOPE("smoe::projections backward");
    const variable_list saved = context->get_saved_variables();
    variable_list gradients(saved.size());
    for (size_t i = 0; i < output_gradients.size(); ++i) {
      const at::Tensor gradient_NF = flat(output_gradients[i]);
      const at::Tensor& weight_FD = saved[i + 1];
      if (context->needs_input_grad(i + 1)) {
        gradients[i + 1] = weight_gradient(weight_FD, gradient_NF, saved[0]);
      }
      if (!context->needs_input_grad(0)) continue;
      if (gradients[0].defined()) {
        gradients[0].addmm_(gradient_NF, weight_FD);
      } else {
        gradients[0] = at::mm(gradient_NF, weight_FD);
      }
    }
    if (gradients[0].defined()) gradients[0] = gradients[0].view(context->saved_data["sizes"].toIntVector());
    return gradients;
  }
};

// visit(begin, count) for pieces of all values.
template <class Visit>
void for_each_piece_of(int64_t num_values, const Visit& visit) {
  at::parallel_for(0, num_values, kValuesPerTask,
                   [&](int64_t begin, int64_t end) { visit(begin, end - begin); });
}

class SwigluFunction : public torch::autograd::Function<SwigluFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gate_FD,
                            const at::Tensor& up_FD, const at::Tensor& down_DF) {
    RECORD_USER_SCOPE("smoe::swiglu forward");
    const at::Tensor x_ND = flat(x);
    const at::Tensor gate_NF = at::mm(x_ND, gate_FD.t());
    const at::Tensor up_NF = at::mm(x_ND, up_FD.t());
    const at::Tensor hidden_NF = at::empty_like(gate_NF);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "swiglu", [&] {
      for_each_piece_of(gate_NF.numel(), [&](int64_t begin, int64_t count) {
        swiglu_hidden(gate_NF.const_data_ptr<scalar_t>() + begin, up_NF.const_data_ptr<scalar_t>() + begin,
                      hidden_NF.mutable_data_ptr<scalar_t>() + begin, count, scalar_t(1));
      });
    });
    context->save_for_backward({x_ND, gate_NF, up_NF, gate_FD, up_FD, down_DF});
    context->saved_data["sizes"] = x.sizes().vec();
    return with_last(at::mm(hidden_NF, down_DF.t()), x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    RECORD_USER_SCOPE("smoe::swiglu backward");
    SMOE_ASSERT(!at::GradMode::is_enabled());  // there is no second derivative
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x_ND = saved[0];
    const at::Tensor gradient_ND = flat(output_gradients[0]);
    at::Tensor hidden_NF = at::mm(gradient_ND, saved[5]);
    const at::Tensor gate_NF = at::empty_like(hidden_NF);
    const at::Tensor up_NF = at::empty_like(hidden_NF);
    AT_DISPATCH_FLOATING_TYPES(x_ND.scalar_type(), "swiglu_backward", [&] {
      for_each_piece_of(hidden_NF.numel(), [&](int64_t begin, int64_t count) {
        swiglu_backward(
            saved[1].const_data_ptr<scalar_t>() + begin, saved[2].const_data_ptr<scalar_t>() + begin,
            hidden_NF.mutable_data_ptr<scalar_t>() + begin, gate_NF.mutable_data_ptr<scalar_t>() + begin,
            up_NF.mutable_data_ptr<scalar_t>() + begin, count, scalar_t(1));
      });
    });
    variable_list gradients(4);
    if (context->needs_input_grad(1)) gradients[1] = weight_gradient(saved[3], gate_NF, x_ND);
    if (context->needs_input_grad(2)) gradients[2] = weight_gradient(saved[4], up_NF, x_ND);
    if (context->needs_input_grad(3)) gradients[3] = weight_gradient(saved[5], gradient_ND, hidden_NF);
    if (context->needs_input_grad(0)) {
      const at::Tensor input_gradient_ND = at::mm(gate_NF, saved[3]).addmm_(up_NF, saved[4]);
      gradients[0] = input_gradient_ND.view(context->saved_data["sizes"].toIntVector());
    }
    return gradients;
  }
};

}  // namespace

std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<at::Tensor>& weights_FD) {
  return ProjectFunction::apply(x, at::TensorList(weights_FD));
}

at::Tensor fused_swiglu(const at::Tensor& x, const SwigluWeights& weights) {
  SMOE_ASSERT(runs_fused(x, weights.gate_FD));
  return SwigluFunction::apply(x, weights.gate_FD, weights.up_FD, weights.down_DF);
}

bool runs_fused(const at::Tensor& x, const at::Tensor& weight) {
  const at::ScalarType type = x.scalar_type();
  return x.is_cpu() && (type == at::kFloat || type == at::kDouble) && weight.scalar_type() == type;
}

}  // namespace smoe
