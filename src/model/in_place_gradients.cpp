#include "smoe/model/in_place_gradients.h"

namespace smoe {
namespace {

thread_local bool allowed = false;

}  // namespace

InPlaceGradients::InPlaceGradients(bool allow) : previous_(allowed) { allowed = allow; }
InPlaceGradients::~InPlaceGradients() { allowed = previous_; }

at::Tensor gradient_to_add_to(const at::Tensor& weight) {
  if (!allowed || !weight.defined() || !weight.is_cpu() || !weight.requires_grad() || !weight.is_leaf())
    return {};
  const at::Tensor& gradient = weight.grad();
  const bool fits = gradient.defined() && gradient.is_contiguous() && gradient.sizes() == weight.sizes() &&
                    gradient.scalar_type() == weight.scalar_type();
  return fits ? gradient : at::Tensor();
}

}  // namespace smoe
