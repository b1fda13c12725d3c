#include "shared_backbone.h"

#include <utility>

namespace smoe {

SharedBackbone::SharedBackbone(const ModelConfig& config, int64_t num_replicas)
    : is_shared_(num_replicas > 1 && dense_states_are_shared(config)), num_replicas_(num_replicas) {}

at::Tensor SharedBackbone::states(const Model& model, const ModelInput& input, int64_t replica) {
  if (!is_shared_) return {};
  if (replica == 0) {
    states_BTD_ = model.dense_states(input);
    leaf_BTD_ = states_BTD_.detach().requires_grad_();
    // At least float32: the sum over replicas in bfloat16 would lose what the smaller ones add.
    const at::ScalarType type = states_BTD_.scalar_type();
    if (type != at::promote_types(type, at::kFloat)) leaf_BTD_.set_grad_dtype(at::kFloat);
  }
  if (replica + 1 < num_replicas_) return leaf_BTD_;
  const at::Tensor states_BTD = std::exchange(states_BTD_, {});
  states_BTD.register_hook([leaf_BTD = std::exchange(leaf_BTD_, {})](const at::Tensor& gradient_BTD) {
    return (gradient_BTD + leaf_BTD.grad()).to(gradient_BTD.scalar_type());
  });
  return states_BTD;
}

}  // namespace smoe
