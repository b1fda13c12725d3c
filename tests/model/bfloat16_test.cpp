// What stays in float32 when weights and activations are bfloat16.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "host_read_recorder.h"
#include "model/token_embedding.h"
#include "model_test_support.h"
#include "smoe/model/layers.h"

namespace smoe {
namespace {

// Widths that are multiples of 8.
ModelConfig bfloat16_config(Architecture architecture) {
  ModelConfig config = testing::tiny_config(architecture);
  config.dim = 32;
  config.expert_dim = 16;
  return config;
}

// The same numbers in both types.
std::pair<Model, Model> low_and_exact(const ModelConfig& config) {
  Model low = testing::tiny_model(config, at::kBFloat16);
  Model exact = testing::tiny_model(config);
  const at::NoGradGuard no_gradient;
  for (size_t i = 0; i < low.parameters().size(); ++i) {
    exact.parameters()[i].tensor.copy_(low.parameters()[i].tensor);
  }
  return {std::move(low), std::move(exact)};
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
}

TEST(Bfloat16, HiddenStatesAndGradientsStayCloseToFloat32) {
  for (const auto& [architecture, name] : EnumNames<Architecture>::values) {
    SCOPED_TRACE(std::string(name));
    ModelConfig config = bfloat16_config(architecture);
    config.routing.mask_source = MaskSource::kPrefix;  // a choice that roundings cannot change
    config.budgets = {{"all", config.num_experts}};
    const auto [low, exact] = low_and_exact(config);
    const ModelInput input = testing::plain_input(testing::random_tokens(2, 24, 61, 3), config, 0);
    const at::Tensor low_hidden = low.forward(input).hidden_BTD;
    const at::Tensor hidden = exact.forward(input).hidden_BTD;
    EXPECT_EQ(low_hidden.scalar_type(), at::kBFloat16);
    EXPECT_LT(relative_difference(low_hidden, hidden), 0.02);
    const at::Tensor direction = at::randn_like(hidden);
    (low_hidden.to(at::kFloat) * direction).sum().backward();
    (hidden * direction).sum().backward();
    for (size_t i = 0; i < low.parameters().size(); ++i) {
      const at::Tensor expected = exact.parameters()[i].tensor.grad();
      if (!expected.defined() || expected.abs().max().item<float>() == 0.0F) continue;
      EXPECT_LT(relative_difference(low.parameters()[i].tensor.grad(), expected), 0.05)
          << low.parameters()[i].name;
    }
  }
}

TEST(Bfloat16, GradientsAreFloat32) {
  const ModelConfig config = bfloat16_config(Architecture::kSteppedMoe);
  const Model model = testing::tiny_model(config, at::kBFloat16);
  model.forward(testing::plain_input(testing::random_tokens(2, 12, 61, 3), config, 1))
      .hidden_BTD.sum()
      .backward();
  for (const NamedParameter& parameter : model.parameters()) {
    EXPECT_EQ(parameter.tensor.scalar_type(), at::kBFloat16) << parameter.name;
    if (parameter.tensor.grad().defined()) {
      EXPECT_EQ(parameter.tensor.grad().scalar_type(), at::kFloat) << parameter.name;
    }
  }
}

TEST(Bfloat16, RouterLogitsMasksAndBiasAreFloat32) {
  ModelConfig config = bfloat16_config(Architecture::kSteppedMoe);
  config.routing.balance.kind = BalanceKind::kBias;
  Model model = testing::tiny_model(config, at::kBFloat16);
  EXPECT_EQ(model.selection_bias_LE().scalar_type(), at::kFloat);
  const ModelOutput output =
      model.forward(testing::plain_input(testing::random_tokens(2, 12, 61, 3), config, 1));
  EXPECT_EQ(output.plan->logits_QLE.scalar_type(), at::kFloat);
  EXPECT_EQ(output.plan->mask_QLE.scalar_type(), at::kFloat);

  const ModelConfig vanilla = bfloat16_config(Architecture::kVanillaMoe);
  const ModelOutput routed =
      testing::tiny_model(vanilla, at::kBFloat16)
          .forward(testing::plain_input(testing::random_tokens(2, 12, 61, 3), vanilla, 1));
  EXPECT_EQ(routed.token_router->probability_sum_LE.scalar_type(), at::kFloat);
  EXPECT_EQ(routed.token_router->z_loss_sum.scalar_type(), at::kFloat);
}

// 4096 gradients of 1 for one token: a sum in bfloat16 stops at 256.
TEST(Bfloat16, AddsTheGradientsOfAFrequentTokenInFloat32) {
  const at::Tensor table = at::zeros({3, 8}, at::kBFloat16).set_requires_grad(true);
  table.set_grad_dtype(at::kFloat);
  embed_tokens(table, at::ones({4, 1024}, at::kLong)).sum().backward();
  EXPECT_TRUE(at::equal(table.grad()[1], at::full({8}, 4096.0)));
  EXPECT_EQ(table.grad()[0].abs().max().item<float>(), 0.0F);
}

// The mean of squares over 8192 entries, of which the first is large: a sum in bfloat16 would ignore the
// rest.
TEST(Bfloat16, NormsAddSquaresInFloat32) {
  at::Tensor x = at::ones({1, 8192}, at::kFloat);
  x[0][0] = 64.0;
  const at::Tensor gain = at::ones({8192});
  const at::Tensor exact = rms_norm(x, gain, 1e-5);
  const at::Tensor low = rms_norm(x.to(at::kBFloat16), gain.to(at::kBFloat16), 1e-5);
  EXPECT_LT((low.to(at::kFloat) / exact - 1.0).abs().max().item<float>(), 1.0F / 256.0F);
}

TEST(Bfloat16, RotatesByExactAngles) {
  const at::Tensor positions = at::arange(30000, 30008);
  const RotaryTable table = rotary_table(positions, 16, 10000.0, at::kFloat);
  const at::Tensor x = at::randn({1, 1, 8, 16}).to(at::kBFloat16);
  const at::Tensor low = apply_rotary(x, table);
  EXPECT_EQ(low.scalar_type(), at::kBFloat16);
  const at::Tensor exact = apply_rotary(x.to(at::kFloat), table);
  EXPECT_LT((low.to(at::kFloat) - exact).abs().max().item<float>(), 0.02F);
}

// The forward and backward pass of the model as a GPU runs them: same operators, other kernels.
TEST(Bfloat16, NothingInTheModelReadsTheDeviceBack) {
  for (const auto& [architecture, name] : EnumNames<Architecture>::values) {
    SCOPED_TRACE(std::string(name));
    const ModelConfig config = bfloat16_config(architecture);
    Model model = testing::tiny_model(config, at::kBFloat16);
    for (const CheckpointedLayers policy : {CheckpointedLayers::kNone, CheckpointedLayers::kAll}) {
      model.set_activation_checkpointing({policy, 2});
      const ModelInput input = testing::plain_input(testing::random_tokens(2, 12, 61, 3), config, 1);
      const testing::HostReadRecorder recorder;
      model.forward(input).hidden_BTD.sum().backward();
      EXPECT_EQ(recorder.found(), std::vector<std::string>());
    }
  }
}

}  // namespace
}  // namespace smoe
