// The yardstick of the benchmarks computes what the library computes.
#include "smoe/bench/stock_model.h"

#include <gtest/gtest.h>

#include "bench/bench_test_support.h"
#include "smoe/train/loss.h"

namespace smoe {
namespace {

class StockModelTest : public ::testing::TestWithParam<std::tuple<StockExperts, bool>> {};

TEST_P(StockModelTest, GivesTheLossAndGradientsOfTheLibrary) {
  const auto& [experts, grouped_queries] = GetParam();
  BenchConfig config = small_bench_config(grouped_queries);
  // The masked-dense form sends the mask's gradient to all experts, as the library does with this setting.
  if (experts == StockExperts::kMaskedDense) config.model.routing.mask_gradient = MaskGradient::kAll;
  Model model(config.model, at::kCPU, at::kFloat);
  model.initialize(3);
  const Batch batch = random_batch(config, 4);
  const StockModel stock(model, experts);
  for (int64_t budget = 0; budget < 2; ++budget) {
    const ModelInput input = input_at_budget(batch, config, budget);
    const auto gradients_of = [&](const at::Tensor& loss) {
      loss.backward();
      std::vector<at::Tensor> gradients;
      for (const NamedParameter& parameter : model.parameters()) {
        at::Tensor tensor = parameter.tensor;
        gradients.push_back(tensor.grad().defined() ? tensor.grad().clone() : at::zeros_like(tensor));
        tensor.mutable_grad().reset();
      }
      return gradients;
    };
    const at::Tensor hidden_ND = model.forward(input).hidden_BTD.flatten(0, 1);
    const at::Tensor loss =
        head_cross_entropy(hidden_ND, model.output_weight(), batch.targets_BT.flatten(), at::ones({64}), {})
            .weighted_loss;
    const at::Tensor stock_loss = stock.loss(stock.forward(input), batch.targets_BT);
    EXPECT_NEAR(loss.item<float>(), stock_loss.item<float>(), 1e-3);
    const std::vector<at::Tensor> expected = gradients_of(loss);
    const std::vector<at::Tensor> found = gradients_of(stock_loss);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-3, 1e-3)) << model.parameters()[i].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllCompositions, StockModelTest,
                         ::testing::Combine(::testing::Values(StockExperts::kMaskedDense,
                                                              StockExperts::kGathered,
                                                              StockExperts::kGrouped),
                                            ::testing::Bool()));

}  // namespace
}  // namespace smoe
