// Lets backward passes add the gradients of weights to those of earlier passes inside the matrix products
// that form them. Autograd's own way writes each gradient to new memory and adds it up in a second pass, four
// times the traffic for every weight of a model, at every micro-batch and budget.
#pragma once

#include <ATen/ATen.h>

namespace smoe {

// While it lives, backward passes on this thread may add to the `.grad` of leaves by themselves and then give
// autograd nothing for them: hooks on those leaves are not called, and torch::autograd::grad finds no
// gradient. For passes whose gradients nobody but the optimizer wants.
class InPlaceGradients {
 public:
  explicit InPlaceGradients(bool allow = true);
  ~InPlaceGradients();
  InPlaceGradients(const InPlaceGradients&) = delete;
  InPlaceGradients& operator=(const InPlaceGradients&) = delete;

 private:
  bool previous_;
};

// The gradient of `weight` that a backward may add to; undefined where it has to hand its own to autograd:
// outside of InPlaceGradients, for a tensor that is no leaf, and where there is no gradient yet.
at::Tensor gradient_to_add_to(const at::Tensor& weight);

}  // namespace smoe
