#include "recompute.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>

#include "smoe/core/error.h"

namespace smoe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Carries the body from forward to backward.
struct BodyHolder : torch::CustomClassHolder {
  explicit BodyHolder(RecomputedBody held) : body(std::move(held)) {}
  RecomputedBody body;
};

class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  // `tensors` are the inputs, `num_inputs` of them, followed by the parameters. The parameters are arguments
  // so that their gradients pass through the graph like any other, hooks included.
  static variable_list forward(AutogradContext* context, at::TensorList tensors, int64_t num_inputs,
                               const RecomputedBody& body) {
    const variable_list all = tensors.vec();
    const variable_list inputs(all.begin(), all.begin() + num_inputs);
    variable_list outputs = body(inputs);
    variable_list countable;
    for (const at::Tensor& output : outputs) {
      if (!at::isFloatingType(output.scalar_type())) countable.push_back(output);
    }
    context->mark_non_differentiable(countable);
    context->set_materialize_grads(false);
    context->save_for_backward(all);
    context->saved_data["num_inputs"] = num_inputs;
    context->saved_data["body"] = at::IValue::make_capsule(c10::make_intrusive<BodyHolder>(body));
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    SMOE_CHECK(NumericError, !at::GradMode::is_enabled(),
               "activation checkpointing has a first derivative only: call backward without create_graph");
    variable_list leaves = context->get_saved_variables();
    const int64_t num_inputs = context->saved_data["num_inputs"].toInt();
    const auto holder =
        c10::static_intrusive_pointer_cast<BodyHolder>(context->saved_data["body"].toCapsule());
    variable_list wanted;
    for (size_t i = 0; i < leaves.size(); ++i) {
      const bool is_wanted = context->needs_input_grad(i);
      if (static_cast<int64_t>(i) < num_inputs) {
        leaves[i] = leaves[i].detach().set_requires_grad(is_wanted);
      }
      if (is_wanted) wanted.push_back(leaves[i]);
    }
    const variable_list gradients = gradients_of(
        holder->body, variable_list(leaves.begin(), leaves.begin() + num_inputs), wanted, output_gradients);
    variable_list result(leaves.size() + 2);  // num_inputs and body have none
    for (size_t i = 0, next = 0; i < leaves.size(); ++i) {
      if (context->needs_input_grad(i)) result[i] = gradients[next++];
    }
    return result;
  }

 private:
  static variable_list gradients_of(const RecomputedBody& body, const variable_list& inputs,
                                    const variable_list& wanted, const variable_list& output_gradients) {
    const at::AutoGradMode with_gradients(true);
    const variable_list outputs = body(inputs);
    variable_list used_outputs, used_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!output_gradients[i].defined() || !outputs[i].requires_grad()) continue;
      used_outputs.push_back(outputs[i]);
      used_gradients.push_back(output_gradients[i]);
    }
    return torch::autograd::grad(used_outputs, wanted, used_gradients, /*retain_graph=*/std::nullopt,
                                 /*create_graph=*/false, /*allow_unused=*/true);
  }
};

}  // namespace

variable_list recompute_in_backward(const RecomputedBody& body, const variable_list& inputs,
                                    const variable_list& parameters) {
  if (!at::GradMode::is_enabled()) return body(inputs);
  variable_list tensors = inputs;
  tensors.insert(tensors.end(), parameters.begin(), parameters.end());
  return RecomputeFunction::apply(at::TensorList(tensors), static_cast<int64_t>(inputs.size()), body);
}

}  // namespace smoe
