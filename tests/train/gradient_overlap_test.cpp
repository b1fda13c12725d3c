// Sums over processes run while the backward pass does. Each test starts this program again as the two ranks
// of a job; they run the tests called DISABLED_Overlap.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process_group_support.h"
#include "smoe/train/data_parallel.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::Each;
using testing::LoopbackJob;

constexpr double kLimit = 60.0;
constexpr int64_t kNumLayers = 6;
constexpr int64_t kDim = 16;

// ---- run by the ranks -------------------------------------------------------------------------

DistributedConfig config_of(int64_t zero_stage) {
  DistributedConfig config;
  config.zero_stage = zero_stage;
  config.bucket_mb = 1e-6;  // a bucket a matrix
  config.timeout_seconds = 15.0;
  return config;
}

// Makes the same operations by hand as the other process does in its backward pass, and tells it when the
// first sum has arrived.
void take_part(Communicator& all, int64_t zero_stage) {
  const auto board = all.message_board("overlap");
  for (int64_t bucket = 0; bucket < kNumLayers; ++bucket) {
    const at::Tensor whole = at::ones({kDim * kDim}), part = at::zeros({kDim * kDim / 2});
    if (zero_stage == 0) {
      all.all_reduce_sum(whole, "by hand");
    } else {
      all.reduce_scatter_sum(part, whole, "by hand");
    }
    if (bucket == 0) board->publish("first sum", "arrived");
  }
}

// A chain of matrices. The gradient of the first one is formed last; before it is, its hook waits until the
// other process has the sum of the gradients that were formed first. If nothing were sent before the backward
// pass ends, that word would never come, and the other process would run into its timeout.
void run_backward(const std::shared_ptr<Communicator>& all, const DistributedConfig& config) {
  std::vector<NamedParameter> parameters;
  for (int64_t layer = 0; layer < kNumLayers; ++layer) {
    const at::Tensor matrix = at::randn({kDim, kDim}).mul_(0.3).requires_grad_(true);
    parameters.push_back({std::to_string(layer), matrix, ParameterKind::kMatrix});
  }
  DataParallel parallel(parameters, all, config);
  const auto board = all->message_board("overlap");
  std::string word;
  parameters.front().tensor.register_hook(
      [&](const at::Tensor& /*gradient*/) { word = board->await("first sum", 1); });
  at::Tensor hidden = at::randn({4, kDim});
  for (const NamedParameter& parameter : parameters) hidden = hidden.mm(parameter.tensor);
  parallel.zero_gradients();
  parallel.begin_backward(/*is_last=*/true);
  hidden.sum().backward();
  EXPECT_EQ(word, "arrived");
  parallel.end_backward();
  parallel.finish_gradients();
}

void expect_overlap(int64_t zero_stage) {
  at::set_num_threads(1);
  const DistributedConfig config = config_of(zero_stage);
  const auto all = Communicator::connect(read_launch_info(), config, at::kCPU);
  if (all->rank() == 0) {
    run_backward(all, config);
  } else {
    take_part(*all, zero_stage);
  }
}

TEST(DISABLED_Overlap, Stage0) { expect_overlap(0); }
TEST(DISABLED_Overlap, Stage1) { expect_overlap(1); }
TEST(DISABLED_Overlap, Stage2) { expect_overlap(2); }

// ---- the tests ----------------------------------------------------------------------------------

class GradientOverlap : public ::testing::TestWithParam<int> {};

TEST_P(GradientOverlap, TheFirstSumArrivesBeforeTheLastGradientIsFormed) {
  const testing::TemporaryFolder folder;
  LoopbackJob job({"/proc/self/exe", "--gtest_also_run_disabled_tests",
                   "--gtest_filter=DISABLED_Overlap.Stage" + std::to_string(GetParam())},
                  2, folder.path());
  EXPECT_THAT(job.wait(kLimit), Each(0)) << job.text();
}

INSTANTIATE_TEST_SUITE_P(Every, GradientOverlap, ::testing::Values(0, 1, 2),
                         [](const ::testing::TestParamInfo<int>& stage) {
                           return "Stage" + std::to_string(stage.param);
                         });

}  // namespace
}  // namespace smoe
