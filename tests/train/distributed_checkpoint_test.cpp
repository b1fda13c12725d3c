// Checkpoints of jobs of several processes: killed ranks, and other numbers of processes on resume. The real
// program runs as loopback ranks, or under torchrun where there is one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "process_group_support.h"
#include "smoe/core/config.h"
#include "smoe/core/progress.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/weight_files.h"
#include "smoe/train/optimizer_state_reader.h"
#include "smoe/train/train_state.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::ChildProcess;
using testing::LoopbackJob;

constexpr const char* kProgram = SMOE_BINARY_DIR "/bin/smoe-train";
constexpr double kLimit = 240.0;

// All tensors of a checkpoint by name, whoever wrote them: weights, and moments as whole tensors.
std::map<std::string, at::Tensor> tensors_of(const fs::path& checkpoint) {
  std::map<std::string, at::Tensor> tensors;
  const WeightFiles weights(checkpoint);
  for (const std::string& name : weights.names()) tensors[name] = weights.tensor(name).clone();
  const OptimizerStateReader moments(checkpoint);
  for (const std::string& name : moments.names()) {
    StateSlice whole;
    whole.name = name;
    whole.shape = moments.shape(name);
    whole.values = at::empty(whole.shape);
    whole.end = whole.values.numel();
    moments.read(whole);
    tensors[name] = whole.values;
  }
  return tensors;
}

double largest_difference(const fs::path& left, const fs::path& right) {
  const auto first = tensors_of(left);
  const auto second = tensors_of(right);
  EXPECT_EQ(first.size(), second.size());
  double largest = 0.0;
  for (const auto& [name, tensor] : first)
    largest = std::max(largest, (tensor - second.at(name)).abs().max().item<double>());
  return largest;
}

class DistributedCheckpoint : public ::testing::Test {
 protected:
  // 12 steps of 6 sequences; all checkpoints stay.
  std::string write_config(int64_t every_steps = 4, int64_t steps = 12) {
    TrainConfig config = testing::tiny_run(folder_.path());
    config.batch_size = 6;
    config.micro_batch_size = 1;
    config.steps = steps;
    config.checkpoint.every_steps = every_steps;
    config.checkpoint.keep_last = 0;
    config.distributed.timeout_seconds = 20.0;
    config.validate_every_steps = 0;
    const fs::path path = folder_ / "config.yaml";
    write_file_atomically(path, dump_config(config));
    return path.string();
  }
  // Trains in `run` with `world_size` processes; with `from`, goes on from that checkpoint of another run.
  void train(const std::string& config, const std::string& run, int world_size, const fs::path& from = {}) {
    if (!from.empty()) {
      fs::create_directories(folder_ / run / "checkpoints");
      fs::copy(from, folder_ / run / "checkpoints" / from.filename(), fs::copy_options::recursive);
    }
    const std::vector<std::string> command = {kProgram, config, "--resume", "--set",
                                              "run_folder=" + (folder_ / run).string()};
    if (world_size == 1) {
      ChildProcess process(command, {}, folder_ / (run + ".txt"));
      ASSERT_EQ(process.wait(kLimit), 0) << process.text();
    } else {
      LoopbackJob job(command, world_size, folder_ / (run + "-logs"));
      ASSERT_THAT(job.wait(kLimit), ::testing::Each(0)) << job.text();
    }
  }
  fs::path checkpoint(const std::string& run, int64_t step) const {
    return folder_ / run / "checkpoints" / fmt::format("step-{:08}", step);
  }
  testing::TemporaryFolder folder_;
};

TEST_F(DistributedCheckpoint, IsWrittenByAllAndReadByAnyNumberOfProcesses) {
  const std::string config = write_config();
  train(config, "one", 1);
  train(config, "two", 2);
  verify_checkpoint(checkpoint("two", 4));
  EXPECT_TRUE(fs::exists(checkpoint("two", 4) / "model-00002-of-00002.safetensors"));
  EXPECT_TRUE(fs::exists(checkpoint("two", 4) / "optimizer-00002-of-00002.safetensors"));
  EXPECT_FALSE(fs::exists(checkpoint("two", 4) / "optimizer.safetensors"));
  // Sums over processes round otherwise, and Adam's first updates magnify that: the learning rate is 4e-3.
  constexpr double kBound = 2e-3;
  EXPECT_LT(largest_difference(checkpoint("one", 12), checkpoint("two", 12)), kBound);

  train(config, "one-two", 2, checkpoint("one", 4));
  train(config, "one-two-one", 1, checkpoint("one-two", 8));
  EXPECT_LT(largest_difference(checkpoint("one", 12), checkpoint("one-two-one", 12)), kBound);
  train(config, "two-three", 3, checkpoint("two", 4));
  verify_checkpoint(checkpoint("two-three", 8));
  EXPECT_LT(largest_difference(checkpoint("two", 12), checkpoint("two-three", 12)), kBound);

  // The same number of processes: bit for bit.
  train(config, "two-two", 2, checkpoint("two", 4));
  EXPECT_EQ(largest_difference(checkpoint("two", 12), checkpoint("two-two", 12)), 0.0);
}

// Bytes of the files that rank `rank` of `world_size` wrote.
double bytes_of_rank(const fs::path& checkpoint, int rank, int world_size) {
  const std::string part = fmt::format("-{:05}-of-{:05}.safetensors", rank + 1, world_size);
  double bytes = 0.0;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().filename().string().ends_with(part)) bytes += static_cast<double>(entry.file_size());
  }
  return bytes;
}

// "512.0 KiB  WHAT" in the report of a dry run.
double bytes_in_report(const std::string& report, const std::string& what) {
  const size_t end = report.find(what);
  if (end == std::string::npos) return 0.0;
  std::istringstream line(report.substr(report.rfind('\n', end) + 1));
  double value = 0.0;
  std::string unit;
  line >> value >> unit;
  return value * (unit == "KiB" ? 1024.0 : unit == "MiB" ? 1024.0 * 1024.0 : 0.0);
}

TEST_F(DistributedCheckpoint, OfEveryStageTakesTheMemoryThatADryRunSaysAndTheBytesThatTheLogSays) {
  const std::string config = write_config(/*every_steps=*/2, /*steps=*/2);
  const std::map<std::string, std::vector<std::string>> layouts = {
      {"whole", {"distributed.zero_stage=0"}},
      {"sharded", {"distributed.zero_stage=1"}},
      {"groups", {"distributed.zero_stage=2", "distributed.shard_group_size=2"}}};
  for (const auto& [name, settings] : layouts) {
    constexpr int kWorldSize = 4;
    std::vector<std::string> command = {kProgram, config, "--set", "run_folder=" + (folder_ / name).string()};
    for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
    std::vector<std::string> dry = command;
    dry.insert(dry.end(), {"--dry-run", "--tokens-per-second", "1000"});
    ChildProcess report(dry, testing::loopback_ranks(kWorldSize).front(), folder_ / (name + "-dry.txt"));
    ASSERT_EQ(report.wait(kLimit), 0) << report.text();
    LoopbackJob job(command, kWorldSize, folder_ / (name + "-logs"));
    ASSERT_THAT(job.wait(kLimit), ::testing::Each(0)) << job.text();

    double largest = 0.0, total = 0.0;
    for (int rank = 0; rank < kWorldSize; ++rank) {
      const double bytes = bytes_of_rank(checkpoint(name, 2), rank, kWorldSize);
      largest = std::max(largest, bytes);
      total += bytes;
    }
    const double said = bytes_in_report(report.text(), "copy for saving");
    EXPECT_NEAR(said, largest, 0.15 * largest) << name << ": whole tensors are dealt out, and headers";
    EXPECT_THAT(read_file(folder_ / name / "log.txt"),
                ::testing::HasSubstr("(" + format_bytes(total) + " in "))
        << name;
  }
}

TEST_F(DistributedCheckpoint, OfHalfPrecisionInShardGroupsIsReadByAnyNumberOfProcesses) {
  TrainConfig half = testing::tiny_run(folder_.path());
  half.model.expert_dim = 16;
  half.dtype = TrainDtype::kBfloat16;
  half.distributed.timeout_seconds = 20.0;
  half.validate_every_steps = 0;
  half.checkpoint.keep_last = 0;
  half.distributed.shard_group_size = 2;
  half.steps = 8;
  const std::string config = (folder_ / "half.yaml").string();
  write_file_atomically(config, dump_config(half));
  train(config, "four", 4);
  train(config, "four-again", 4, checkpoint("four", 4));
  EXPECT_EQ(largest_difference(checkpoint("four", 8), checkpoint("four-again", 8)), 0.0) << "bit for bit";
  // Other numbers of processes sum in another order, and a weight of bfloat16 then falls on another rounding.
  constexpr double kBound = 2e-2;
  train(config, "four-one", 1, checkpoint("four", 4));
  EXPECT_LT(largest_difference(checkpoint("four", 8), checkpoint("four-one", 8)), kBound);
  train(config, "four-one-two", 2, checkpoint("four-one", 8));
  EXPECT_EQ(largest_difference(checkpoint("four-one", 8), checkpoint("four-one-two", 8)), 0.0)
      << "masters and weights of a finished run are read and written as they are";
}

TEST_F(DistributedCheckpoint, OfAnotherRunsLastStepIsSavedAgainByAllInTheNewFolder) {
  const std::string config = write_config();
  train(config, "run", 2);
  LoopbackJob job({kProgram, config, "--resume-from", checkpoint("run", 12).string(), "--set",
                   "run_folder=" + (folder_ / "other").string()},
                  2, folder_ / "other-logs");
  ASSERT_THAT(job.wait(kLimit), ::testing::Each(0)) << job.text();
  EXPECT_EQ(largest_difference(checkpoint("run", 12), checkpoint("other", 12)), 0.0);
}

TEST_F(DistributedCheckpoint, ThatIsDamagedEndsAllProcessesWithTheReasonOfTheOneThatVerifies) {
  const std::string config = write_config();
  train(config, "run", 2);
  const fs::path damaged = checkpoint("run", 12) / "train_state.json";
  write_file_atomically(damaged, read_file(damaged) + " ");
  LoopbackJob job({kProgram, config, "--resume", "--set", "run_folder=" + (folder_ / "run").string()}, 2,
                  folder_ / "damaged-logs");
  const std::vector<int> statuses = job.wait(kLimit);
  EXPECT_EQ(statuses[0], 4);
  EXPECT_NE(statuses[1], 0);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(job.rank(rank).text(), ::testing::HasSubstr("train_state.json")) << rank;
}

TEST_F(DistributedCheckpoint, RanksKilledAtRandomMomentsUnderTorchrunEndLikeARunThatWasLeftAlone) {
  const std::string launcher = testing::find_torchrun();
  if (launcher.empty()) GTEST_SKIP() << "needs a torchrun that works; SMOE_TORCHRUN names one";
  constexpr int64_t kSteps = 40;
  const std::string config = write_config(/*every_steps=*/1, kSteps);
  train(config, "straight", 2);

  const fs::path run = folder_ / "killed";
  ChildProcess job({launcher, "--no-python", "--standalone", "--nproc-per-node=2", "--max-restarts=8",
                    kProgram, config, "--resume", "--set", "run_folder=" + run.string()},
                   {{"OMP_WAIT_POLICY", "passive"}}, folder_ / "killed.txt");
  std::mt19937 random(std::random_device{}());
  const auto newest = [&] {
    const auto all = list_checkpoints(run / "checkpoints");
    return all.empty() ? int64_t{0} : checkpoint_step(all.back()).value_or(0);
  };
  int num_killed = 0;
  for (int64_t target = 3; target < kSteps - 4 && num_killed < 4; target = newest() + 3) {
    const auto end = std::chrono::steady_clock::now() + 90s;
    while (newest() < target && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(3ms);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100000));
    const std::vector<pid_t> ranks = testing::descendants(job.id(), "smoe-train");
    if (ranks.empty()) break;
    ::kill(ranks[random() % ranks.size()], SIGKILL);
    ++num_killed;
  }
  ASSERT_EQ(job.wait(kLimit), 0) << job.text();
  EXPECT_GE(num_killed, 3);
  for (const fs::path& path : list_checkpoints(run / "checkpoints")) verify_checkpoint(path);
  for (const auto& entry : fs::directory_iterator(run / "checkpoints"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".step-")) << entry.path() << " is left over";
  EXPECT_EQ(largest_difference(checkpoint("straight", kSteps), checkpoint("killed", kSteps)), 0.0);
}

}  // namespace
}  // namespace smoe
