// Weight gradients that backward passes add in place against those that autograd adds up.
#include "smoe/model/in_place_gradients.h"

#include <gtest/gtest.h>

#include "model/projections.h"
#include "smoe/model/routed_experts.h"

namespace smoe {
namespace {

using torch::autograd::variable_list;

struct Operation {
  std::string name;
  std::function<at::Tensor(const variable_list& x_and_weights)> run;
  std::vector<std::vector<int64_t>> shapes;  // of x and the weights
};

std::vector<Operation> operations() {
  // Expert 2 of 3 is never selected; segments of 40 rows of N = 80, each longer than a chunk may be short.
  const at::Tensor mask_QE = at::tensor({1.0, 1.0, 0.0, 0.0, 1.0, 0.0}, at::kDouble).view({2, 3});
  return {{"projections",
           [](const variable_list& t) {
             return project(t[0], {t[1], t[2]})[1].sum() + project(t[0], {t[1]})[0].sum();
           },
           {{80, 6}, {4, 6}, {5, 6}}},
          {"swiglu",
           [](const variable_list& t) {
             return fused_swiglu(t[0], {t[1], t[2], t[3]}).sum();
           },
           {{80, 6}, {8, 6}, {8, 6}, {6, 8}}},
          {"routed experts",
           [mask_QE](const variable_list& t) {
             return routed_experts_sparse(t[0], {t[1], t[2], t[3]}, mask_QE, {{0, 40}, {40, 80}}).sum();
           },
           {{80, 6}, {3, 4, 6}, {3, 4, 6}, {3, 6, 4}}}};
}

// Gradients of all tensors after two backward passes over gradients of zeros.
variable_list gradients_of(const Operation& operation, bool in_place) {
  at::manual_seed(1);
  variable_list tensors;
  for (const std::vector<int64_t>& shape : operation.shapes) {
    tensors.push_back(at::randn(shape, at::kDouble).requires_grad_(true));
    tensors.back().mutable_grad() = at::zeros(shape, at::kDouble);
  }
  const InPlaceGradients guard(in_place);
  for (int pass = 0; pass < 2; ++pass) operation.run(tensors).backward();
  variable_list gradients;
  for (const at::Tensor& tensor : tensors) gradients.push_back(tensor.grad());
  return gradients;
}

TEST(InPlaceGradients, AreTheSumsThatAutogradForms) {
  for (const Operation& operation : operations()) {
    SCOPED_TRACE(operation.name);
    const variable_list expected = gradients_of(operation, false);
    const variable_list found = gradients_of(operation, true);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_GT(expected[i].abs().sum().item<double>(), 0.0);
      EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-11, 1e-11)) << "tensor " << i;
    }
  }
}

TEST(InPlaceGradients, AreLeftToAutogradOutsideTheirScopeAndWithoutAGradient) {
  at::Tensor weight = at::randn({2, 2}).requires_grad_(true);
  EXPECT_FALSE(gradient_to_add_to(weight).defined());
  {
    const InPlaceGradients guard;
    EXPECT_FALSE(gradient_to_add_to(weight).defined());
    weight.mutable_grad() = at::zeros({2, 2});
    EXPECT_TRUE(gradient_to_add_to(weight).is_same(weight.grad()));
    EXPECT_FALSE(gradient_to_add_to(weight * 2).defined());
    const InPlaceGradients forbidden(false);
    EXPECT_FALSE(gradient_to_add_to(weight).defined());
  }
  EXPECT_FALSE(gradient_to_add_to(weight).defined());
}

}  // namespace
}  // namespace smoe
