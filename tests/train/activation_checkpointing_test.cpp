// Activation checkpointing at the level of a training step: the same numbers in less memory.
#include "smoe/model/activation_checkpointing.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "memory_meter.h"
#include "smoe/train/gradient_accumulator.h"
#include "train_test_support.h"

namespace smoe {
namespace {

struct StepOutcome {
  StepLosses losses;
  std::vector<std::pair<std::string, at::Tensor>> gradients;
  int64_t peak_bytes = 0;
};

StepOutcome run_step(const TrainConfig& config, const Batch& batch, const ActivationCheckpointing& policy) {
  at::set_num_threads(1);
  Model model(config.model, at::kCPU);
  model.initialize(11);
  model.set_activation_checkpointing(policy);
  GradientAccumulator accumulator(model, config);
  StepOutcome outcome;
  {
    const testing::MemoryMeter meter;
    outcome.losses = accumulator.accumulate(batch, {3, 40}, nullptr);
    outcome.peak_bytes = meter.peak_bytes();
  }
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.tensor.grad().defined()) {
      outcome.gradients.emplace_back(parameter.name, parameter.tensor.grad());
    }
  }
  return outcome;
}

// Two packed dialogues and padding a row: documents, positions and routing by turns, as fine-tuning has them.
Batch packed_batch() {
  Batch batch = testing::random_batch(4, 12, 96, 4);
  batch.documents_BT = at::zeros({4, 12}, at::kLong);
  batch.documents_BT.narrow(1, 5, 7).fill_(1);
  batch.positions_BT = at::cat({at::arange(5), at::arange(7)}).expand({4, 12}).contiguous();
  return batch;
}

TEST(ActivationCheckpointing, ChangesNoGradientByASingleBit) {
  for (const auto& [architecture, name] : EnumNames<Architecture>::values) {
    TrainConfig config;
    config.model = testing::tiny_model_config(architecture);
    config.model.num_dense_layers = 2;
    config.model.token_router.load_balance_weight = 0.3;
    config.micro_batch_size = 2;
    for (const bool is_packed : {false, true}) {
      const Batch batch = is_packed ? packed_batch() : testing::random_batch(4, 12, 96, 4);
      const StepOutcome plain = run_step(config, batch, {});
      for (const auto& [policy, policy_name] : EnumNames<CheckpointedLayers>::values) {
        SCOPED_TRACE(std::string(name) + " " + std::string(policy_name) + (is_packed ? " packed" : ""));
        const StepOutcome found = run_step(config, batch, {policy, 2});
        EXPECT_EQ(found.losses.loss, plain.losses.loss);
        EXPECT_EQ(found.losses.balance_loss, plain.losses.balance_loss);
        ASSERT_EQ(found.gradients.size(), plain.gradients.size());
        for (size_t i = 0; i < plain.gradients.size(); ++i) {
          EXPECT_TRUE(at::equal(found.gradients[i].second, plain.gradients[i].second))
              << plain.gradients[i].first;
        }
      }
    }
  }
}

TEST(ActivationCheckpointing, CoversTheLayersOfItsPolicy) {
  const auto covered = [](CheckpointedLayers policy, int64_t every_n) {
    std::string layers;
    for (int64_t index = 0; index < 6; ++index) {
      layers += ActivationCheckpointing{policy, every_n}.covers(index, 2) ? 'x' : '.';
    }
    return layers;
  };
  EXPECT_EQ(covered(CheckpointedLayers::kNone, 2), "......");
  EXPECT_EQ(covered(CheckpointedLayers::kAll, 2), "xxxxxx");
  EXPECT_EQ(covered(CheckpointedLayers::kEveryN, 2), "x.x.x.");
  EXPECT_EQ(covered(CheckpointedLayers::kEveryN, 3), "x..x..");
  EXPECT_EQ(covered(CheckpointedLayers::kMoe, 2), "..xxxx");
  EXPECT_EQ(covered(CheckpointedLayers::kDense, 2), "xx....");
}

TEST(ActivationCheckpointing, SavesMemoryByTheShareOfItsLayers) {
  TrainConfig config;
  config.model = testing::tiny_model_config();
  config.model.num_dense_layers = 4;
  config.model.num_moe_layers = 8;
  config.model.dense_ffn_dim = 128;
  config.micro_batch_size = 4;
  config.loss.head_chunk_tokens = 16;
  const Batch batch = testing::random_batch(4, 128, 96, 4);
  const auto peak = [&](CheckpointedLayers policy) {
    return static_cast<double>(run_step(config, batch, {policy, 2}).peak_bytes);
  };
  const double none = peak(CheckpointedLayers::kNone);
  const double half = peak(CheckpointedLayers::kEveryN);
  const double all = peak(CheckpointedLayers::kAll);
  const double moe = peak(CheckpointedLayers::kMoe);
  RecordProperty("peak_bytes_none", std::to_string(none));
  RecordProperty("peak_bytes_every_2", std::to_string(half));
  RecordProperty("peak_bytes_moe", std::to_string(moe));
  RecordProperty("peak_bytes_all", std::to_string(all));
  EXPECT_LT(half, 0.7 * none);
  EXPECT_LT(all, 0.35 * none);
  EXPECT_LT(moe, 0.8 * none);
  EXPECT_LT(all, moe);
}

}  // namespace
}  // namespace smoe
