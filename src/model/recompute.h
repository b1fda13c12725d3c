// Activation checkpointing of a part of the model: the forward pass keeps its inputs only, and the backward
// pass runs the part again to get at the activations.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <functional>

namespace smoe {

// Maps inputs to outputs. It is called twice and must give the same outputs both times; it owns, or outlives
// the backward pass with, everything that it refers to besides its inputs.
using RecomputedBody =
    std::function<torch::autograd::variable_list(const torch::autograd::variable_list& inputs)>;

// body(inputs), differentiable once in `inputs` and in `parameters`, the leaves that the body uses by itself.
// Inputs and outputs are defined. Without gradients it is a plain call. Gradients equal those of the plain
// call bit for bit where the body's operators are deterministic.
torch::autograd::variable_list recompute_in_backward(const RecomputedBody& body,
                                                     const torch::autograd::variable_list& inputs,
                                                     const torch::autograd::variable_list& parameters);

}  // namespace smoe
