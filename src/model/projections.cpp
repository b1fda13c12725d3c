#include "projections.h"

#include <ATen/Dispatch.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include "row_shares.h"
#include "smoe/core/error.h"
#include "smoe/model/in_place_gradients.h"
#include "swiglu_kernels.h"

namespace smoe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor flat(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}).contiguous(); }

at::Tensor with_last(const at::Tensor& flat_x, const at::Tensor& like) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes.back() = flat_x.size(1);
  return flat_x.view(sizes);
}

// output_gradient^T * input: added to what the weight has already, or else returned.
template <class Scalar>
at::Tensor weight_gradient(const at::Tensor& weight_FD, const at::Tensor& output_gradient_NF,
                           const at::Tensor& input_ND) {
  const at::Tensor existing_FD = gradient_to_add_to(weight_FD);
  const bool adds = existing_FD.defined();
  const at::Tensor sum_FD = adds ? existing_FD : at::empty(weight_FD.sizes(), input_ND.options());
  multiply_by_row_shares(matrix_of<Scalar>(output_gradient_NF).transpose(), matrix_of<Scalar>(input_ND),
                         Scalar(adds ? 1 : 0), mutable_matrix_of<Scalar>(sum_FD));
  return adds ? at::Tensor() : sum_FD;
}

int64_t products_of(const at::Tensor& x_ND, const at::Tensor& weight_FD) {
  return x_ND.size(0) * weight_FD.numel();
}

class ProjectFunction : public torch::autograd::Function<ProjectFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights) {
    RECORD_USER_SCOPE("smoe::projections forward");
    const at::Tensor x_ND = flat(x);
    variable_list saved = {x_ND};
    variable_list outputs;
    int64_t multiply_adds = 0;
    for (const at::Tensor& weight_FD : weights) {
      outputs.push_back(at::empty({x_ND.size(0), weight_FD.size(0)}, x_ND.options()));
      saved.push_back(weight_FD.contiguous());
      multiply_adds += products_of(x_ND, weight_FD);
    }
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "project", [&] {
      for_each_row_share(x_ND.size(0), multiply_adds, [&](int64_t begin, int64_t end) {
        for (size_t i = 0; i < outputs.size(); ++i) {
          multiply(row_range(matrix_of<scalar_t>(x_ND), begin, end),
                   matrix_of<scalar_t>(saved[i + 1]).transpose(), scalar_t(0),
                   row_range(mutable_matrix_of<scalar_t>(outputs[i]), begin, end));
        }
      });
    });
    for (at::Tensor& output : outputs) output = with_last(output, x);
    // The weights themselves, whose gradients the backward may add to.
    for (size_t i = 0; i < weights.size(); ++i) saved[i + 1] = weights[i];
    context->save_for_backward(std::move(saved));
    context->saved_data["sizes"] = x.sizes().vec();
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    RECORD_USER_SCOPE("smoe::projections backward");
    SMOE_ASSERT(!at::GradMode::is_enabled());  // there is no second derivative
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x_ND = saved[0];
    variable_list gradients(saved.size());
    variable_list flat_gradients, weights;
    int64_t multiply_adds = 0;
    for (size_t i = 0; i < output_gradients.size(); ++i) {
      flat_gradients.push_back(flat(output_gradients[i]));
      weights.push_back(saved[i + 1].contiguous());
      multiply_adds += products_of(x_ND, saved[i + 1]);
    }
    AT_DISPATCH_FLOATING_TYPES(x_ND.scalar_type(), "project_backward", [&] {
      for (size_t i = 0; i < weights.size(); ++i) {
        if (!context->needs_input_grad(i + 1)) continue;
        gradients[i + 1] = weight_gradient<scalar_t>(saved[i + 1], flat_gradients[i], x_ND);
      }
      if (!context->needs_input_grad(0)) return;
      const at::Tensor input_gradient_ND = at::empty_like(x_ND);
      for_each_row_share(x_ND.size(0), multiply_adds, [&](int64_t begin, int64_t end) {
        for (size_t i = 0; i < weights.size(); ++i) {
          multiply(row_range(matrix_of<scalar_t>(flat_gradients[i]), begin, end),
                   matrix_of<scalar_t>(weights[i]), scalar_t(i == 0 ? 0 : 1),
                   row_range(mutable_matrix_of<scalar_t>(input_gradient_ND), begin, end));
        }
      });
      gradients[0] = input_gradient_ND.view(context->saved_data["sizes"].toIntVector());
    });
    return gradients;
  }
};

// The matrices of a SwiGLU over all rows.
template <class Scalar>
struct SwigluMatrices {
  MatrixView<const Scalar> gate_FD, up_FD, down_DF;

  explicit SwigluMatrices(const SwigluWeights& weights)
      : gate_FD(matrix_of<Scalar>(weights.gate_FD)),
        up_FD(matrix_of<Scalar>(weights.up_FD)),
        down_DF(matrix_of<Scalar>(weights.down_DF)) {}
};

class SwigluFunction : public torch::autograd::Function<SwigluFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gate_FD,
                            const at::Tensor& up_FD, const at::Tensor& down_DF) {
    RECORD_USER_SCOPE("smoe::swiglu forward");
    const at::Tensor x_ND = flat(x);
    const SwigluWeights weights{gate_FD.contiguous(), up_FD.contiguous(), down_DF.contiguous()};
    const int64_t hidden_dim = gate_FD.size(0);
    const at::Tensor gate_NF = at::empty({x_ND.size(0), hidden_dim}, x_ND.options());
    const at::Tensor up_NF = at::empty_like(gate_NF);
    const at::Tensor hidden_NF = at::empty_like(gate_NF);
    const at::Tensor y_ND = at::empty({x_ND.size(0), down_DF.size(0)}, x_ND.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "swiglu", [&] {
      const SwigluMatrices<scalar_t> matrices(weights);
      for_each_row_share(x_ND.size(0), 3 * products_of(x_ND, gate_FD), [&](int64_t begin, int64_t end) {
        const auto rows = [&](const at::Tensor& all) {
          return row_range(mutable_matrix_of<scalar_t>(all), begin, end);
        };
        const auto x_rows = row_range(matrix_of<scalar_t>(x_ND), begin, end);
        multiply(x_rows, matrices.gate_FD.transpose(), scalar_t(0), rows(gate_NF));
        multiply(x_rows, matrices.up_FD.transpose(), scalar_t(0), rows(up_NF));
        swiglu_hidden(rows(gate_NF).data, rows(up_NF).data, rows(hidden_NF).data, (end - begin) * hidden_dim,
                      scalar_t(1));
        multiply(as_const(rows(hidden_NF)), matrices.down_DF.transpose(), scalar_t(0), rows(y_ND));
      });
    });
    context->save_for_backward({x_ND, gate_NF, up_NF, gate_FD, up_FD, down_DF});
    context->saved_data["sizes"] = x.sizes().vec();
    return with_last(y_ND, x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    RECORD_USER_SCOPE("smoe::swiglu backward");
    SMOE_ASSERT(!at::GradMode::is_enabled());  // there is no second derivative
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x_ND = saved[0];
    const SwigluWeights weights{saved[3].contiguous(), saved[4].contiguous(), saved[5].contiguous()};
    const int64_t hidden_dim = weights.gate_FD.size(0);
    const at::Tensor gradient_ND = flat(output_gradients[0]);
    const at::Tensor hidden_NF = at::empty_like(saved[1]);
    const at::Tensor gate_NF = at::empty_like(hidden_NF);
    const at::Tensor up_NF = at::empty_like(hidden_NF);
    const at::Tensor input_gradient_ND = at::empty_like(x_ND);
    variable_list gradients(4);
    AT_DISPATCH_FLOATING_TYPES(x_ND.scalar_type(), "swiglu_backward", [&] {
      const SwigluMatrices<scalar_t> matrices(weights);
      const int64_t multiply_adds = 3 * products_of(x_ND, weights.gate_FD);
      for_each_row_share(x_ND.size(0), multiply_adds, [&](int64_t begin, int64_t end) {
        const auto rows = [&](const at::Tensor& all) {
          return row_range(mutable_matrix_of<scalar_t>(all), begin, end);
        };
        multiply(as_const(rows(gradient_ND)), matrices.down_DF, scalar_t(0), rows(hidden_NF));
        swiglu_backward(rows(saved[1]).data, rows(saved[2]).data, rows(hidden_NF).data, rows(gate_NF).data,
                        rows(up_NF).data, (end - begin) * hidden_dim, scalar_t(1));
        multiply(as_const(rows(gate_NF)), matrices.gate_FD, scalar_t(0), rows(input_gradient_ND));
        multiply(as_const(rows(up_NF)), matrices.up_FD, scalar_t(1), rows(input_gradient_ND));
      });
      if (context->needs_input_grad(1)) gradients[1] = weight_gradient<scalar_t>(saved[3], gate_NF, x_ND);
      if (context->needs_input_grad(2)) gradients[2] = weight_gradient<scalar_t>(saved[4], up_NF, x_ND);
      if (context->needs_input_grad(3))
        gradients[3] = weight_gradient<scalar_t>(saved[5], gradient_ND, hidden_NF);
    });
    gradients[0] = input_gradient_ND.view(context->saved_data["sizes"].toIntVector());
    return gradients;
  }
};

}  // namespace

std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<at::Tensor>& weights_FD) {
  SMOE_ASSERT(runs_fused(x, weights_FD.front()));
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
