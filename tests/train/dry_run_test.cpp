#include "smoe/train/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "process_group_support.h"
#include "smoe/core/available_cores.h"
#include "smoe/core/error.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/join_job.h"
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

// torchrun's variables of rank 0 of `world_size` processes on this node, for as long as the object lives.
class AsRankZero {
 public:
  explicit AsRankZero(int world_size) {
    const testing::Environment variables = testing::loopback_ranks(world_size).front();
    for (const auto& [name, value] : variables) {
      names_.push_back(name);
      ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
    }
  }
  ~AsRankZero() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }
  AsRankZero(const AsRankZero&) = delete;
  AsRankZero& operator=(const AsRankZero&) = delete;

 private:
  std::vector<std::string> names_;
};

std::string refusal_of_job(const TrainConfig& config) {
  try {
    join_job(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

struct Refusal {
  std::string name;
  int world_size = 2;
  std::function<void(TrainConfig&)> change;
  std::string message;
};

void PrintTo(const Refusal& refusal, std::ostream* stream) { *stream << refusal.name; }

class RefusedJob : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedJob, IsRefusedByTheDryRunInTheSameWords) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  GetParam().change(config);
  const AsRankZero variables(GetParam().world_size);
  EXPECT_THAT(refusal_of_job(config), HasSubstr(GetParam().message));
  EXPECT_EQ(error_of<ConfigError>(config, fast()), refusal_of_job(config));
}

INSTANTIATE_TEST_SUITE_P(
    Every, RefusedJob,
    ::testing::Values(Refusal{"BatchSmallerThanTheJob", 5, [](TrainConfig&) {},
                              "batch_size is 4, fewer sequences than the 5 processes"},
                      Refusal{"GroupsThatDoNotDivide", 4,
                              [](TrainConfig& config) { config.distributed.shard_group_size = 3; },
                              "shard_group_size is 3, which does not divide the 4 processes"},
                      Refusal{"GroupLargerThanTheJob", 2,
                              [](TrainConfig& config) { config.distributed.shard_group_size = 4; },
                              "shard_group_size is 4, which does not divide the 2 processes"},
                      Refusal{"NcclOnTheCpu", 2,
                              [](TrainConfig& config) {
                                config.distributed.backend = CommunicationBackend::kNccl;
                              },
                              "distributed.backend is nccl"},
                      Refusal{"GlooOnGpus", 2,
                              [](TrainConfig& config) {
                                config.distributed.backend = CommunicationBackend::kGloo;
                                config.device = "cuda";
                              },
                              "distributed.backend is gloo"},
                      Refusal{"OneGpuForAll", 2, [](TrainConfig& config) { config.device = "cuda:0"; },
                              "2 processes run on this node and would share that GPU"}),
    [](const ::testing::TestParamInfo<Refusal>& refusal) { return refusal.param.name; });

TEST(DryRunOfAJob, FindsHalfALauncher) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  ::setenv("RANK", "0", 1);
  EXPECT_THAT(error_of<ConfigError>(config, fast()), HasSubstr("but not WORLD_SIZE"));
  ::unsetenv("RANK");
}

TEST(DryRunOfAJob, SaysHowAStepIsCutUp) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.num_threads = 0;
  const AsRankZero variables(3);
  const std::string text = describe_run(config, fast());
  EXPECT_THAT(text,
              AllOf(HasSubstr("processes       3, 3 of them on this node; 1 or 2 sequences of a step each, "
                              "2 at a time; device cpu"),
                    HasSubstr("batch_size 4 is no multiple of 3 processes"),
                    HasSubstr("in each of 3 processes: zero_stage 1, shards over 3")));
  const int64_t threads = std::max<int64_t>(available_cores() / 3, 1);
  EXPECT_THAT(text, HasSubstr(fmt::format("CPU threads each: {}\n", threads)));
  config.num_threads = available_cores();
  EXPECT_THAT(describe_run(config, fast()),
              HasSubstr(fmt::format("run {} threads on {} cores", 3 * available_cores(), available_cores())));
}

TEST(DryRunOfAJob, TakesShardGroupsForNothingWhereNothingIsSharedOut) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.distributed.zero_stage = 0;
  config.distributed.shard_group_size = 3;
  const AsRankZero variables(4);
  EXPECT_THAT(describe_run(config, fast()), HasSubstr("zero_stage 0, shards over 1"));
}

}  // namespace
}  // namespace smoe
