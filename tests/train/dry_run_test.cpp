#include "smoe/train/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "smoe/core/error.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/trainer.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

DryRunOptions fast(bool resume = false) {
  DryRunOptions options;
  options.resume = resume;
  options.tokens_per_s = 1000.0;
  return options;
}

void train(const TrainConfig& config) {
  TrainerOptions options;
  options.console = false;
  options.log_to_folder = false;
  Trainer(config, options).run();
}

template <class ErrorType>
std::string error_of(const TrainConfig& config, const DryRunOptions& options) {
  try {
    describe_run(config, options);
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "no error";
}

TEST(DryRun, ReportsSizesAndLeavesNothingBehind) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  const std::string text = describe_run(config, fast());
  EXPECT_THAT(text, AllOf(HasSubstr("parameters"), HasSubstr("budget 2B"), HasSubstr("two moments"),
                          HasSubstr("activations"), HasSubstr("FLOP a step"), HasSubstr("12 steps"),
                          HasSubstr("start           from random weights"), HasSubstr("a checkpoint")));
  // 12 steps of 4 sequences of 16 tokens at 3 budgets: 2304 tokens.
  EXPECT_THAT(text, HasSubstr("time            2s at 1K tokens/s"));
  EXPECT_FALSE(fs::exists(config.run_folder));
}

TEST(DryRun, MeasuresWhatTheMachineAllows) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT(describe_run(testing::tiny_run(folder.path()), {}), HasSubstr("FLOP/s that matrix products"));
}

TEST(DryRun, CountsTheBytesOfACheckpointExactly) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  train(config);
  const fs::path checkpoint = resolve_checkpoint(config.run_folder);
  const double bytes = static_cast<double>(fs::file_size(checkpoint / "model.safetensors") +
                                           fs::file_size(checkpoint / "optimizer.safetensors"));
  const std::string text = describe_run(config, fast(true));
  const size_t at = text.find("disk") + 16;
  const double said = std::stod(text.substr(at)) * 1024.0;
  EXPECT_NEAR(said, bytes, 0.05 * bytes) << "headers aside";
  EXPECT_THAT(text, HasSubstr("step-00000012 at step 12"));
}

TEST(DryRun, FindsWhatAResumeWouldStumbleOver) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  train(config);
  EXPECT_THAT(error_of<ConfigError>(config, fast()), HasSubstr("holds checkpoints already"));
  TrainConfig other = config;
  other.model.expert_dim = 16;
  EXPECT_THAT(error_of<CheckpointError>(other, fast(true)), HasSubstr("model.expert_dim: 12 -> 16"));
  other = config;
  other.data.seed = 99;
  EXPECT_THAT(error_of<CheckpointError>(other, fast(true)), HasSubstr("training data or its order changed"));
  std::ofstream(fs::path(config.run_folder) / "metrics.jsonl", std::ios::app) << "not json\n";
  EXPECT_THAT(error_of<DataError>(config, fast(true)), HasSubstr("not a metrics line"));
  write_file_atomically(fs::path(config.run_folder) / "metrics.jsonl", "");
  const fs::path weights = resolve_checkpoint(config.run_folder) / "model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 1);
  EXPECT_THAT(error_of<CheckpointError>(config, fast(true)),
              AllOf(HasSubstr("is damaged"), HasSubstr("--resume-from previous")));
}

TEST(DryRun, FindsInitialWeightsThatDoNotFit) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  train(config);
  config.initialize_from = config.run_folder;
  config.run_folder = (folder / "second").string();
  EXPECT_THAT(describe_run(config, fast()), HasSubstr("from the weights of"));
  config.model.dense_ffn_dim = 40;
  EXPECT_THAT(error_of<CheckpointError>(config, fast()),
              AllOf(HasSubstr("does not fit"), HasSubstr("feed_forward")));
}

TEST(DryRun, FindsAFolderThatCannotBeWrittenAndADiskThatIsTooSmall) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.run_folder = "/proc/run";
  EXPECT_THAT(error_of<ConfigError>(config, fast()), HasSubstr("/proc"));
  config.run_folder = (folder / "tokenizer.json" / "run").string();
  EXPECT_THAT(error_of<ConfigError>(config, fast()), HasSubstr("tokenizer.json is not a folder"));
  config.run_folder = (folder / "run").string();
  config.steps = 1'000'000'000'000;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep_last = 0;
  EXPECT_THAT(error_of<ConfigError>(config, fast()),
              AllOf(HasSubstr("are free on its disk"), HasSubstr("checkpoint.keep_last")));
}

TEST(DryRun, FindsADeviceThatIsNotThere) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.device = "cuda:63";
  EXPECT_THAT(error_of<ConfigError>(config, fast()), HasSubstr("cuda"));
}

}  // namespace
}  // namespace smoe
