#include "smoe/train/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "smoe/core/error.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<NamedParameter> make_parameters(at::ScalarType type = at::kDouble) {
  at::manual_seed(5);
  const auto make = [&](at::IntArrayRef shape) {
    return at::randn(shape, at::kDouble).to(type).requires_grad_(true);
  };
  std::vector<NamedParameter> parameters;
  parameters.push_back({"embedding", make({7, 4}), ParameterKind::kEmbedding});
  parameters.push_back({"matrix", make({4, 4}), ParameterKind::kMatrix});
  parameters.push_back({"router", make({8, 4}), ParameterKind::kRouter});
  parameters.push_back({"norm", make({4}), ParameterKind::kNorm});
  parameters.push_back({"bias", at::ones({2, 8}), ParameterKind::kBuffer});
  return parameters;
}

OptimizerConfig make_config() {
  OptimizerConfig config;
  config.learning_rate = 0.02;
  config.weight_decay = 0.01;
  config.mup_base_dim = 768;
  config.router_learning_rate_scale = 0.1;
  return config;
}

at::Tensor gradient_of(const at::Tensor& tensor, int64_t step) {
  at::manual_seed(static_cast<uint64_t>(100 * step + tensor.numel()));
  return at::randn(tensor.sizes(), at::kDouble);
}

void set_gradients(std::vector<NamedParameter>& parameters, int64_t step) {
  for (NamedParameter& parameter : parameters) {
    if (parameter.kind == ParameterKind::kBuffer) continue;
    parameter.tensor.mutable_grad().copy_(gradient_of(parameter.tensor, step));
  }
}

// The formula at the top of optimizer.h, one tensor at a time, as the papers write it.
struct NaiveAdamW {
  at::Tensor first, second;
  int64_t step = 0;
  at::Tensor update(const at::Tensor& values, const at::Tensor& gradient, const OptimizerConfig& config,
                    double scale, double decay, double multiplier) {
    if (!first.defined()) first = at::zeros_like(gradient), second = at::zeros_like(gradient);
    ++step;
    first = config.beta1 * first + (1 - config.beta1) * gradient;
    second = config.beta2 * second + (1 - config.beta2) * gradient * gradient;
    const at::Tensor first_hat = first / (1 - std::pow(config.beta1, step));
    const at::Tensor second_hat = second / (1 - std::pow(config.beta2, step));
    const at::Tensor adam = first_hat / (second_hat.sqrt() + config.epsilon);
    return values - multiplier * (scale * config.learning_rate * adam + decay * values);
  }
};

TEST(Optimizer, EqualsNaiveAdamWWithDecoupledDecayAndMupSimple) {
  const OptimizerConfig config = make_config();
  const double expected_scale[] = {1.0, 0.5, 0.1, 1.0};  // dim 1536
  std::vector<NamedParameter> parameters = make_parameters();
  Optimizer optimizer(config, parameters, 1536);
  NaiveAdamW naive[4];
  std::vector<at::Tensor> expected;
  for (int i = 0; i < 4; ++i) expected.push_back(parameters[i].tensor.detach().clone());
  const double multipliers[] = {0.0, 0.3, 1.0, 0.7, 0.05};
  for (int64_t step = 0; step < 5; ++step) {
    set_gradients(parameters, step);
    optimizer.step(multipliers[step]);
    for (size_t i = 0; i < 4; ++i) {
      expected[i] = naive[i].update(expected[i], gradient_of(expected[i], step), config, expected_scale[i],
                                    config.weight_decay, multipliers[step]);
      EXPECT_LT((parameters[i].tensor.detach() - expected[i]).abs().max().item<double>(), 1e-12)
          << parameters[i].name << " step " << step;
    }
  }
  EXPECT_TRUE(at::equal(parameters[4].tensor, at::ones({2, 8})));
  EXPECT_EQ(optimizer.num_steps(), 5);
}

TEST(Optimizer, DecayDependsOnTheScheduleButNotOnTheLearningRate) {
  for (const double learning_rate : {1e-4, 0.5}) {
    OptimizerConfig config = make_config();
    config.learning_rate = learning_rate;
    config.router_learning_rate_scale = 0.0;  // frozen, but it decays like the others
    std::vector<NamedParameter> parameters = make_parameters();
    std::vector<at::Tensor> before;
    for (const NamedParameter& parameter : parameters) before.push_back(parameter.tensor.detach().clone());
    Optimizer optimizer(config, parameters, 3072);
    optimizer.step(0.5);  // gradients are zero
    for (size_t i = 0; i < 4; ++i) {
      const at::Tensor expected = before[i] * (1.0 - 0.5 * config.weight_decay);
      EXPECT_LT((parameters[i].tensor.detach() - expected).abs().max().item<double>(), 1e-14)
          << parameters[i].name;
    }
  }
}

TEST(Optimizer, CanSpareEmbeddingsAndNormsTheDecay) {
  OptimizerConfig config = make_config();
  config.decay_embeddings_and_norms = false;
  std::vector<NamedParameter> parameters = make_parameters();
  const at::Tensor embedding = parameters[0].tensor.detach().clone();
  const at::Tensor matrix = parameters[1].tensor.detach().clone();
  Optimizer optimizer(config, parameters, 64);
  optimizer.step(1.0);
  EXPECT_TRUE(at::equal(parameters[0].tensor.detach(), embedding));
  EXPECT_FALSE(at::equal(parameters[1].tensor.detach(), matrix));
}

TEST(LearningRateScale, IsMupSimple) {
  OptimizerConfig config = make_config();
  EXPECT_DOUBLE_EQ(learning_rate_scale(config, ParameterKind::kMatrix, 2048), 0.375);
  EXPECT_DOUBLE_EQ(learning_rate_scale(config, ParameterKind::kMatrix, 256), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_scale(config, ParameterKind::kEmbedding, 2048), 1.0);
  config.mup_base_dim = 0;
  EXPECT_DOUBLE_EQ(learning_rate_scale(config, ParameterKind::kMatrix, 2048), 1.0);
}

TEST(Optimizer, ClipsToTheGlobalNorm) {
  std::vector<NamedParameter> parameters = make_parameters(at::kFloat);
  Optimizer optimizer(make_config(), parameters, 64);
  set_gradients(parameters, 1);
  double square_sum = 0.0;
  for (size_t i = 0; i < 4; ++i)
    square_sum += parameters[i].tensor.grad().to(at::kDouble).square().sum().item<double>();
  const double norm = optimizer.gradient_norm();
  EXPECT_NEAR(norm, std::sqrt(square_sum), 1e-5);
  optimizer.clip_gradients(norm);
  EXPECT_NEAR(optimizer.gradient_norm(), 1.0, 1e-5);
  optimizer.clip_gradients(0.9);
  EXPECT_NEAR(optimizer.gradient_norm(), 1.0, 1e-5) << "a small norm is left alone";
}

TEST(Optimizer, NamesTheFirstGradientThatIsNotFinite) {
  std::vector<NamedParameter> parameters = make_parameters(at::kFloat);
  Optimizer optimizer(make_config(), parameters, 64);
  EXPECT_EQ(optimizer.first_non_finite_gradient(), "");
  parameters[2].tensor.mutable_grad()[3][1] = NAN;
  EXPECT_EQ(optimizer.first_non_finite_gradient(), "router");
}

TEST(Optimizer, GoesOnExactlyFromASavedState) {
  const testing::TemporaryFolder folder;
  std::vector<NamedParameter> straight = make_parameters(at::kFloat);
  Optimizer first(make_config(), straight, 1536);
  for (int64_t step = 0; step < 3; ++step) set_gradients(straight, step), first.step(1.0);
  write_safetensors(folder / "optimizer.safetensors", first.state());
  std::vector<NamedParameter> resumed = make_parameters(at::kFloat);
  for (size_t i = 0; i < 4; ++i) {
    resumed[i].tensor.detach().copy_(straight[i].tensor.detach());
  }
  Optimizer second(make_config(), resumed, 1536);
  second.load_state(SafetensorsFile(folder / "optimizer.safetensors"));
  set_gradients(straight, 9), first.step(0.5);
  set_gradients(resumed, 9), second.step(0.5);
  EXPECT_EQ(second.num_steps(), 4);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(at::equal(straight[i].tensor, resumed[i].tensor)) << straight[i].name;
}

TEST(Optimizer, RefusesAStateThatDoesNotFitAndListsEverything) {
  const testing::TemporaryFolder folder;
  std::vector<NamedParameter> parameters = make_parameters(at::kFloat);
  Optimizer optimizer(make_config(), parameters, 64);
  TensorList state = optimizer.state();
  state[0].second = at::zeros({3});
  state[1].first = "stranger.exp_avg_sq";
  write_safetensors(folder / "o.safetensors", state);
  try {
    optimizer.load_state(SafetensorsFile(folder / "o.safetensors"));
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("o.safetensors"), HasSubstr("embedding.exp_avg has shape [3]"),
                      HasSubstr("embedding.exp_avg_sq is missing"), HasSubstr("stranger.exp_avg_sq")));
  }
}

}  // namespace
}  // namespace smoe
