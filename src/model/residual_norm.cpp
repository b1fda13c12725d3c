#include "residual_norm.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "norm_kernels.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowsPerTask = 64;

template <class Scalar>
const Scalar* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<Scalar>() : nullptr;
}

// Rows in shares of one contiguous range a thread: the sums of a gain's gradient are then a function of the
// number of threads alone.
template <class Body>
void for_each_share(int64_t num_rows, int64_t num_shares, const Body& body) {
  at::parallel_for(0, num_shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) {
      body(share, num_rows * share / num_shares, num_rows * (share + 1) / num_shares);
    }
  });
}

int64_t share_count(int64_t num_rows) {
  return std::clamp<int64_t>(num_rows / kRowsPerTask, 1, at::get_num_threads());
}

class ResidualNormFunction : public torch::autograd::Function<ResidualNormFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& h,
                               const std::optional<at::Tensor>& optional_branch, const at::Tensor& gain,
                               double epsilon) {
    RECORD_USER_SCOPE("smoe::norm forward");
    context->set_materialize_grads(false);
    const at::Tensor branch = optional_branch.value_or(at::Tensor());
    const at::Tensor input = h.contiguous();
    const at::Tensor added = branch.defined() ? branch.contiguous() : branch;
    const at::Tensor weights = gain.contiguous();
    const int64_t dim = weights.numel();
    const int64_t num_rows = input.numel() / dim;
    const at::Tensor sum = branch.defined() ? at::empty(input.sizes(), input.options()) : input;
    const at::Tensor normed = at::empty(input.sizes(), input.options());
    const at::Tensor factor_N = at::empty({num_rows}, input.options());
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "residual_norm", [&] {
      const auto* h_rows = input.const_data_ptr<scalar_t>();
      const auto* branch_rows = data_or_null<scalar_t>(added);
      auto* sum_rows = branch_rows == nullptr ? nullptr : sum.mutable_data_ptr<scalar_t>();
      auto* normed_rows = normed.mutable_data_ptr<scalar_t>();
      auto* factors = factor_N.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, num_rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t at = row * dim;
          const bool adds = branch_rows != nullptr;
          factors[row] = norm_forward_row(h_rows + at, adds ? branch_rows + at : nullptr,
                                          weights.const_data_ptr<scalar_t>(), adds ? sum_rows + at : nullptr,
                                          normed_rows + at, dim, static_cast<scalar_t>(epsilon));
        }
      });
    });
    context->save_for_backward({sum, weights, factor_N});
    context->saved_data["has_branch"] = branch.defined();
    // An output that is an input itself would be taken for a change in place.
    return {branch.defined() ? sum : h.view_as(h), normed};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_USER_SCOPE("smoe::norm backward");
    SMOE_ASSERT(!at::GradMode::is_enabled());  // there is no second derivative
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& sum = saved[0];
    const at::Tensor& gain = saved[1];
    const int64_t dim = gain.numel();
    const int64_t num_rows = sum.numel() / dim;
    const at::Tensor sum_gradient = gradients[0].defined() ? gradients[0].contiguous() : gradients[0];
    const at::Tensor normed_gradient =
        gradients[1].defined() ? gradients[1].contiguous() : at::zeros_like(sum);
    const at::Tensor result = at::empty_like(sum);
    const int64_t num_shares = share_count(num_rows);
    const at::Tensor gain_gradient_SD = at::zeros({num_shares, dim}, gain.options());
    AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "residual_norm_backward", [&] {
      const auto* sum_gradient_rows = data_or_null<scalar_t>(sum_gradient);
      for_each_share(num_rows, num_shares, [&](int64_t share, int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t at = row * dim;
          norm_backward_row(sum.const_data_ptr<scalar_t>() + at, gain.const_data_ptr<scalar_t>(),
                            sum_gradient_rows == nullptr ? nullptr : sum_gradient_rows + at,
                            normed_gradient.const_data_ptr<scalar_t>() + at,
                            result.mutable_data_ptr<scalar_t>() + at,
                            gain_gradient_SD.mutable_data_ptr<scalar_t>() + share * dim, dim,
                            saved[2].const_data_ptr<scalar_t>()[row]);
        }
      });
    });
    const bool has_branch = context->saved_data["has_branch"].toBool();
    return {result, has_branch ? result : at::Tensor(), gain_gradient_SD.sum(0).view_as(gain), at::Tensor()};
  }
};

}  // namespace

ResidualNorm residual_norm(const at::Tensor& h, const at::Tensor& branch, const at::Tensor& gain,
                           double epsilon) {
  SMOE_ASSERT(!branch.defined() || branch.sizes() == h.sizes());
  const at::ScalarType type = h.scalar_type();
  if (!h.is_cpu() || (type != at::kFloat && type != at::kDouble) || gain.scalar_type() != type) {
    const at::Tensor sum = branch.defined() ? h + branch : h;
    return {sum, at::rms_norm(sum, gain.sizes(), gain, epsilon)};
  }
  // As an optional, because autograd takes no undefined inputs.
  const std::optional<at::Tensor> added = branch.defined() ? std::optional(branch) : std::nullopt;
  variable_list outputs = ResidualNormFunction::apply(h, added, gain, epsilon);
  return {std::move(outputs[0]), std::move(outputs[1])};
}

}  // namespace smoe
