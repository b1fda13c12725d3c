// Whole training steps on a GPU: the numbers of the CPU, no hidden waiting, memory that is used again.
#include <ATen/Parallel.h>

#include "gpu_test_support.h"
#include "smoe/model/device.h"
#include "smoe/train/gradient_accumulator.h"
#include "smoe/train/optimizer.h"
#include "train/train_test_support.h"
#include "wait_counter.h"

namespace smoe {
namespace {

using testing::kGpu;
using testing::relative_error;

TrainConfig step_config(Architecture architecture) {
  TrainConfig config;
  config.model = testing::tiny_model_config(architecture);
  config.model.expert_dim = 16;  // bfloat16 wants multiples of 8
  config.model.token_router.load_balance_weight = 0.3;
  config.micro_batch_size = 2;
  return config;
}

// Packed rows with a dialogue's masked targets.
Batch packed_batch() {
  Batch batch = testing::random_batch(4, 16, 96, 4);
  batch.documents_BT = at::zeros({4, 16}, at::kLong);
  batch.documents_BT.narrow(1, 5, 11).fill_(1);
  batch.positions_BT = at::cat({at::arange(5), at::arange(11)}).expand({4, 16}).contiguous();
  return batch;
}

struct Step {
  StepLosses losses;
  std::vector<std::pair<std::string, at::Tensor>> gradients;
};

Step run_step(const TrainConfig& config, const Batch& batch, at::Device device, at::ScalarType dtype) {
  Model model(config.model, device, dtype);
  model.initialize(11);
  GradientAccumulator accumulator(model, config);
  Step step{accumulator.accumulate(batch, {3, 40}, nullptr), {}};
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.tensor.grad().defined())
      step.gradients.emplace_back(parameter.name, parameter.tensor.grad());
  }
  return step;
}

TEST(GpuStep, GivesTheLossAndGradientsOfTheCpuInFloat32) {
  SMOE_NEEDS_GPU();
  for (const auto& [architecture, name] : EnumNames<Architecture>::values) {
    for (const Batch& batch : {testing::random_batch(4, 16, 96, 4), packed_batch()}) {
      SCOPED_TRACE(std::string(name) + (batch.documents_BT.defined() ? " packed" : ""));
      const Step expected = run_step(step_config(architecture), batch, at::kCPU, at::kFloat);
      const Step found = run_step(step_config(architecture), batch, kGpu, at::kFloat);
      EXPECT_NEAR(found.losses.loss, expected.losses.loss, 1e-4);
      EXPECT_NEAR(found.losses.balance_loss, expected.losses.balance_loss, 1e-4);
      ASSERT_EQ(found.gradients.size(), expected.gradients.size());
      for (size_t i = 0; i < expected.gradients.size(); ++i) {
        EXPECT_LT(relative_error(found.gradients[i].second, expected.gradients[i].second), 2e-3)
            << expected.gradients[i].first;
      }
    }
  }
}

TEST(GpuStep, StaysCloseToTheCpuInBfloat16) {
  SMOE_NEEDS_GPU();
  for (const auto& [architecture, name] : EnumNames<Architecture>::values) {
    SCOPED_TRACE(std::string(name));
    const Step expected = run_step(step_config(architecture), packed_batch(), at::kCPU, at::kFloat);
    const Step found = run_step(step_config(architecture), packed_batch(), kGpu, at::kBFloat16);
    EXPECT_NEAR(found.losses.loss, expected.losses.loss, 0.02 * expected.losses.loss);
  }
}

TEST(GpuStep, WaitsOnceForItsLossesAndOnceForItsNorm) {
  SMOE_NEEDS_GPU();
  for (const auto& [architecture, name] : EnumNames<Architecture>::values) {
    SCOPED_TRACE(std::string(name));
    const TrainConfig config = step_config(architecture);
    Model model(config.model, kGpu, at::kBFloat16);
    model.initialize(11);
    Optimizer optimizer(config.optimizer, model.parameters(), config.model.dim);
    GradientAccumulator accumulator(model, config);
    for (const Batch& batch : {testing::random_batch(4, 16, 96, 4), packed_batch()}) {
      SCOPED_TRACE(batch.documents_BT.defined() ? "packed" : "plain");
      const auto step = [&] {
        optimizer.zero_gradients();
        accumulator.accumulate(batch, {3, 40}, nullptr);
        const double norm = optimizer.gradient_norm();
        optimizer.clip_gradients(norm);
        optimizer.step(0.5);
      };
      step();  // kernels are loaded and tuned at their first use
      const testing::WaitCounter counter;
      step();
      EXPECT_EQ(counter.num_waits(), 2);
    }
  }
}

TEST(GpuStep, NeedsNoMoreMemoryForMoreStepsOrReplicas) {
  SMOE_NEEDS_GPU();
  TrainConfig config = step_config(Architecture::kSteppedMoe);
  config.model.routing.segment_length = 16;
  const Batch batch = testing::random_batch(4, 256, 96, 4);
  Model model(config.model, kGpu, at::kBFloat16);
  model.initialize(11);
  Optimizer optimizer(config.optimizer, model.parameters(), config.model.dim);
  GradientAccumulator accumulator(model, config);
  const auto peak_after_step = [&] {
    optimizer.zero_gradients();
    accumulator.accumulate(batch, {3, 40}, nullptr);
    return peak_memory_bytes(kGpu);
  };
  const int64_t first = peak_after_step();
  for (int step = 0; step < 5; ++step) EXPECT_EQ(peak_after_step(), first);
}

TEST(GpuStep, RecomputedLayersTakeLessMemory) {
  SMOE_NEEDS_GPU();
  TrainConfig config = step_config(Architecture::kSteppedMoe);
  config.model.num_dense_layers = 4;
  config.model.num_moe_layers = 8;
  const Batch batch = testing::random_batch(4, 512, 96, 4);
  // The peak never falls: the smaller one is measured first.
  const auto peak = [&](CheckpointedLayers policy) {
    Model model(config.model, kGpu, at::kBFloat16);
    model.initialize(11);
    model.set_activation_checkpointing({policy, 2});
    GradientAccumulator(model, config).accumulate(batch, {3, 40}, nullptr);
    return static_cast<double>(peak_memory_bytes(kGpu));
  };
  const double all = peak(CheckpointedLayers::kAll);
  const double none = peak(CheckpointedLayers::kNone);
  EXPECT_LT(all, 0.6 * none);
}

}  // namespace
}  // namespace smoe
