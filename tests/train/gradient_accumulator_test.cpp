#include "smoe/train/gradient_accumulator.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "smoe/train/model_input.h"
#include "train_test_support.h"

namespace smoe {
namespace {

struct Gradients {
  StepLosses losses;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
};

TrainConfig make_config(Architecture architecture, BudgetSampling sampling, int64_t micro_batch_size) {
  TrainConfig config;
  config.model = testing::tiny_model_config(architecture);
  config.budget_sampling = sampling;
  config.micro_batch_size = micro_batch_size;
  config.loss.head_chunk_tokens = 10;
  config.loss.z_loss_weight = 1e-3;
  config.model.token_router.load_balance_weight = 0.3;  // large enough to show in the gradients
  return config;
}

Model make_model(const TrainConfig& config, at::ScalarType type = at::kDouble) {
  at::set_num_threads(1);  // the work is too small to share
  Model model(config.model, at::kCPU, type);
  model.initialize(11);
  return model;
}

Gradients run_step(const TrainConfig& config, const Batch& batch) {
  const Model model = make_model(config);
  Gradients result;
  GradientAccumulator accumulator(model, config);
  result.losses = accumulator.accumulate(batch, {3, 40}, nullptr);
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.kind == ParameterKind::kBuffer) continue;
    const at::Tensor gradient = parameter.tensor.grad();
    result.tensors.emplace_back(parameter.name,
                                gradient.defined() ? gradient : at::zeros_like(parameter.tensor.detach()));
  }
  return result;
}

void expect_equal_gradients(const Gradients& a, const Gradients& b, double tolerance) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const double scale = 1.0 + a.tensors[i].second.abs().max().item<double>();
    EXPECT_LT((a.tensors[i].second - b.tensors[i].second).abs().max().item<double>(), tolerance * scale)
        << a.tensors[i].first;
  }
}

TEST(GradientAccumulator, MicroBatchSizeChangesNothing) {
  const Batch batch = testing::random_batch(5, 10, 96, 4);
  for (const auto& [architecture, name] : EnumNames<Architecture>::values) {
    for (const auto& [sampling, sampling_name] : EnumNames<BudgetSampling>::values) {
      SCOPED_TRACE(std::string(name) + " " + std::string(sampling_name));
      const Gradients whole = run_step(make_config(architecture, sampling, 8), batch);
      for (const int64_t size : {1, 2}) {
        const Gradients parts = run_step(make_config(architecture, sampling, size), batch);
        EXPECT_NEAR(parts.losses.loss, whole.losses.loss, 1e-5);
        EXPECT_NEAR(parts.losses.balance_loss, whole.losses.balance_loss, 1e-5);
        EXPECT_NEAR(parts.losses.router_z_loss, whole.losses.router_z_loss, 1e-5);
        EXPECT_EQ(parts.losses.num_targets, whole.losses.num_targets);
        expect_equal_gradients(parts, whole, 1e-5);
      }
    }
  }
}

TEST(GradientAccumulator, MicroBatchSizeChangesNoRandomChoice) {
  Batch batch = testing::random_batch(5, 10, 96, 4);
  batch.documents_BT = at::zeros({5, 10}, at::kLong);
  batch.documents_BT[1].narrow(0, 3, 7).fill_(1);  // a row with another number of segments
  TrainConfig config = make_config(Architecture::kSteppedMoe, BudgetSampling::kReplicate, 8);
  config.model.routing.selection_noise = 2.0;
  config.model.routing.random_mask_fraction = 0.9;
  const Gradients whole = run_step(config, batch);
  config.micro_batch_size = 2;
  const Gradients parts = run_step(config, batch);
  EXPECT_TRUE(at::equal(parts.losses.load_LE, whole.losses.load_LE));
  expect_equal_gradients(parts, whole, 1e-5);
}

// While masks are random, the experts of a small budget are among those of a large one: then only k of the
// largest budget's experts get any segment, however many budgets there are.
TEST(GradientAccumulator, RandomMasksOfASequenceAreNestedOverItsBudgets) {
  TrainConfig config = make_config(Architecture::kSteppedMoe, BudgetSampling::kReplicate, 1);
  config.model.routing.segment_length = 10;
  config.model.routing.random_mask_fraction = 0.9;
  config.steps = 1000000000;  // at step 3 every segment is still random
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const StepLosses losses = run_step(config, testing::random_batch(1, 10, 96, seed)).losses;
    // One segment a budget of k = 1, 3, 5: one expert has 3, two have 2, two have 1, three have none.
    const at::Tensor sorted_LE = std::get<0>(losses.load_LE.sort(1, /*descending=*/true));
    const at::Tensor expected_E = at::tensor({3, 2, 2, 1, 1, 0, 0, 0}, at::kLong);
    EXPECT_TRUE(at::equal(sorted_LE, expected_E.expand_as(sorted_LE)));
  }
}

TEST(GradientAccumulator, MicroBatchSizeChangesNoBalanceLoss) {
  const Batch batch = testing::random_batch(5, 10, 96, 4);
  for (const BudgetSampling sampling : {BudgetSampling::kReplicate, BudgetSampling::kCyclic}) {
    TrainConfig config = make_config(Architecture::kSteppedMoe, sampling, 8);
    config.model.routing.balance.kind = BalanceKind::kLoss;
    config.model.routing.balance.loss_weight = 1.0;
    const Gradients whole = run_step(config, batch);
    EXPECT_GE(whole.losses.balance_loss, 0.9);
    for (const int64_t size : {1, 2}) {
      config.micro_batch_size = size;
      const Gradients parts = run_step(config, batch);
      EXPECT_NEAR(parts.losses.balance_loss, whole.losses.balance_loss, 1e-5);
      expect_equal_gradients(parts, whole, 1e-5);
    }
  }
}

// Batch replication as the paper writes it: the batch tiled once a budget, one forward, one mean. Without a
// size embedding at the input the replicas share what the dense layers compute.
class ReplicaTest : public ::testing::TestWithParam<SizeEmbedding> {};

INSTANTIATE_TEST_SUITE_P(GradientAccumulator, ReplicaTest,
                         ::testing::Values(SizeEmbedding::kInput, SizeEmbedding::kRouterOnly,
                                           SizeEmbedding::kNone),
                         [](const auto& test) { return std::string(enum_to_name(test.param)); });

TEST_P(ReplicaTest, SequentialReplicasEqualTheTiledBatch) {
  TrainConfig config = make_config(Architecture::kSteppedMoe, BudgetSampling::kReplicate, 2);
  config.model.size_embedding = GetParam();
  config.loss.z_loss_weight = 0.0;
  const Batch batch = testing::random_batch(4, 10, 96, 6);
  const Gradients sequential = run_step(config, batch);

  const Model model = make_model(config);
  const int64_t num_budgets = 3;
  std::vector<int64_t> budget_of_row;
  std::vector<double> alpha_of_row;
  const std::vector<double> alpha = {1.0 / 3.0, 1.0, 5.0 / 3.0};  // k / mean k for k = 1, 3, 5
  for (int64_t row = 0; row < 4 * num_budgets; ++row) {
    budget_of_row.push_back(row / 4);
    alpha_of_row.push_back(alpha[static_cast<size_t>(row / 4)]);
  }
  Batch tiled;
  tiled.tokens_BT = batch.tokens_BT.repeat({num_budgets, 1});
  tiled.targets_BT = batch.targets_BT.repeat({num_budgets, 1});
  tiled.loss_mask_BT = batch.loss_mask_BT.repeat({num_budgets, 1});
  const ModelOutput output = model.forward(make_model_input(tiled, 4, budget_of_row, at::kCPU));
  const at::Tensor logits_NV = at::linear(output.hidden_BTD, model.output_weight()).flatten(0, 1);
  const at::Tensor cross_entropy_BT =
      at::cross_entropy_loss(logits_NV, tiled.targets_BT.flatten(), {}, at::Reduction::None).view({12, 10});
  const at::Tensor weights_BT =
      tiled.loss_mask_BT.to(at::kDouble) * at::tensor(alpha_of_row, at::kDouble).unsqueeze(1);
  const at::Tensor loss = (cross_entropy_BT * weights_BT).sum() / tiled.loss_mask_BT.sum();
  loss.backward();

  EXPECT_NEAR(sequential.losses.loss, loss.item<double>(), 1e-6);
  size_t index = 0;
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.kind == ParameterKind::kBuffer) continue;
    const auto& [name, gradient] = sequential.tensors[index++];
    ASSERT_EQ(name, parameter.name);
    EXPECT_LT((gradient - parameter.tensor.grad()).abs().max().item<double>(), 1e-5) << name;
  }
}

TEST(GradientAccumulator, ReportsTheLossOfEachBudget) {
  const TrainConfig config = make_config(Architecture::kSteppedMoe, BudgetSampling::kReplicate, 2);
  const Batch batch = testing::random_batch(4, 10, 96, 6);
  const StepLosses losses = run_step(config, batch).losses;
  EXPECT_EQ(losses.unique_targets, 35);
  EXPECT_EQ(losses.processed_tokens, 120);
  EXPECT_EQ(losses.num_targets, (std::vector<int64_t>{35, 35, 35}));
  const Model model = make_model(config);
  for (int64_t budget = 0; budget < 3; ++budget) {
    const at::Tensor hidden =
        model.forward(make_model_input(batch, 4, std::vector<int64_t>(4, budget), at::kCPU)).hidden_BTD;
    const at::Tensor all_N = at::cross_entropy_loss(at::linear(hidden, model.output_weight()).flatten(0, 1),
                                                    batch.targets_BT.flatten(), {}, at::Reduction::None);
    EXPECT_NEAR(losses.cross_entropy_sums[static_cast<size_t>(budget)],
                (all_N * batch.loss_mask_BT.flatten()).sum().item<double>(), 1e-4);
  }
  // 3 budgets x (1 + 3 + 5) experts / 3, over 4 rows of 3 segments, in each of 2 layers.
  EXPECT_EQ(losses.load_LE.sum().item<int64_t>(), 2 * 4 * 3 * (1 + 3 + 5));
}

TEST(GradientAccumulator, MixedBudgetsAreToldApart) {
  const TrainConfig config = make_config(Architecture::kSteppedMoe, BudgetSampling::kCyclic, 4);
  const Model model = make_model(config);
  GradientAccumulator accumulator(model, config);
  std::vector<RouterStatistics> panels = make_router_statistics(config.model);
  // Position 40 is at budget 40 mod 3 = 1.
  const StepLosses losses = accumulator.accumulate(testing::random_batch(4, 10, 96, 6), {3, 40}, &panels);
  EXPECT_EQ(losses.num_targets, (std::vector<int64_t>{10, 15, 10}));
  EXPECT_EQ(panels[0].num_segments(), 3);
  EXPECT_EQ(panels[1].num_segments(), 6);
  EXPECT_EQ(panels[2].load_LE().sum().item<int64_t>(), 2 * 3 * 5);
}

TEST(GradientAccumulator, UniformVanillaRouterHasBalanceLossOne) {
  TrainConfig config = make_config(Architecture::kVanillaMoe, BudgetSampling::kReplicate, 2);
  Model model = make_model(config);
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.kind == ParameterKind::kRouter) parameter.tensor.detach().zero_();
  }
  GradientAccumulator accumulator(model, config);
  const StepLosses losses = accumulator.accumulate(testing::random_batch(4, 10, 96, 6), {1, 0}, nullptr);
  EXPECT_NEAR(losses.balance_loss, 1.0, 1e-5);
  EXPECT_NEAR(losses.router_z_loss, std::log(8.0) * std::log(8.0), 1e-5);
}

TEST(LossWeights, FollowThePowerOrTheList) {
  TrainConfig config = make_config(Architecture::kSteppedMoe, BudgetSampling::kReplicate, 2);
  config.loss.budget_weight_power = 0.0;
  EXPECT_EQ(loss_weights(config), (std::vector<double>{1, 1, 1}));
  config.loss.budget_weights = {0.5, 1.0, 2.0};
  EXPECT_EQ(loss_weights(config), (std::vector<double>{0.5, 1.0, 2.0}));
}

TEST(ModelInput, PackedDocumentsDoNotSeeEachOther) {
  Batch batch = testing::random_batch(1, 6, 96, 1);
  batch.documents_BT = at::tensor({0, 0, 0, 1, 1, 1}, at::kLong).unsqueeze(0);
  const ModelInput input = make_model_input(batch, 2, {0}, at::kCPU);
  EXPECT_EQ(input.document_lengths, (DocumentLengths{{3, 3}}));
  EXPECT_EQ(input.segments.num_segments(), 4) << "segments start anew at the document border";
}

}  // namespace
}  // namespace smoe
