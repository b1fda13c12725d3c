// Jobs of several real processes on the loopback interface, compared with a process on its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "process_group_support.h"
#include "run_comparison.h"
#include "smoe/core/config.h"
#include "smoe/model/checkpoint_reader.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::ChildProcess;
using testing::compare;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::kWeightBound;
using testing::largest_weight_difference;
using testing::LoopbackJob;
using testing::metrics;
using ::testing::Not;

constexpr const char* kProgram = SMOE_BINARY_DIR "/bin/smoe-train";
constexpr double kLimit = 120.0;
constexpr double kTimeout = 8.0;

struct Split {
  std::string name;
  Architecture architecture = Architecture::kSteppedMoe;
  int world_size = 2;
  std::vector<std::string> settings;
};

void PrintTo(const Split& split, std::ostream* stream) { *stream << split.name; }

class DistributedRun : public ::testing::Test {
 protected:
  TrainConfig config(Architecture architecture) {
    TrainConfig config = testing::tiny_run(folder_.path(), architecture);
    config.steps = 5;
    config.batch_size = 7;  // no number of processes here divides it
    config.checkpoint.every_steps = 100;
    config.validate_every_steps = 3;
    config.validation_rows = 5;
    config.optimizer.epsilon = 1e-5;  // a gradient of rounding errors alone must not become a whole step
    config.distributed.bucket_mb = 0.02;
    config.distributed.timeout_seconds = 30.0;
    return config;
  }
  std::string write(const TrainConfig& config, const std::string& name = "config.yaml") {
    write_file_atomically(folder_ / name, dump_config(config));
    return (folder_ / name).string();
  }
  std::vector<std::string> command(const std::string& file, const std::string& run,
                                   const std::vector<std::string>& settings = {}) const {
    std::vector<std::string> words = {kProgram, file, "--set", "run_folder=" + (folder_ / run).string()};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return words;
  }
  testing::TemporaryFolder folder_;
};

class SplitRun : public DistributedRun, public ::testing::WithParamInterface<Split> {};

TEST_P(SplitRun, EqualsThatOfAProcessOnItsOwn) {
  const Split& split = GetParam();
  const TrainConfig base = config(split.architecture);
  const std::string file = write(base);
  ChildProcess alone(command(file, "alone", split.settings), {}, folder_ / "alone.txt");
  ASSERT_EQ(alone.wait(kLimit), 0) << alone.text();
  LoopbackJob job(command(file, "split", split.settings), split.world_size, folder_ / "ranks");
  ASSERT_THAT(job.wait(kLimit), Each(0)) << job.text();

  const std::vector<nlohmann::json> expected = metrics(folder_ / "alone"), found = metrics(folder_ / "split");
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) compare(expected[i], found[i], "line " + std::to_string(i));
  EXPECT_LT(largest_weight_difference(folder_ / "alone", folder_ / "split"), kWeightBound);
  EXPECT_THAT(job.rank(0).text(), HasSubstr("finished step 5"));
  EXPECT_EQ(job.rank(1).text(), "") << "one console";
  EXPECT_TRUE(fs::exists(folder_ / "split" / "log-rank-1.txt"));
}

std::string zero(int stage) { return "distributed.zero_stage=" + std::to_string(stage); }
const std::string kGroupsOfOne = "distributed.shard_group_size=1";
const std::string kGroupsOfTwo = "distributed.shard_group_size=2";

INSTANTIATE_TEST_SUITE_P(
    Every, SplitRun,
    ::testing::Values(
        Split{"Zero0OnTwo", Architecture::kSteppedMoe, 2, {zero(0)}},
        Split{"Zero1OnTwo", Architecture::kSteppedMoe, 2, {zero(1)}},
        Split{"Zero2OnTwo", Architecture::kSteppedMoe, 2, {zero(2)}},
        Split{"Zero0OnFour", Architecture::kSteppedMoe, 4, {zero(0)}},
        Split{"Zero1InGroupsOfTwo", Architecture::kSteppedMoe, 4, {zero(1), kGroupsOfTwo}},
        Split{"Zero1InGroupsOfOne", Architecture::kDense, 2, {zero(1), kGroupsOfOne}},
        Split{"Zero2InGroupsOfOne", Architecture::kDense, 2, {zero(2), kGroupsOfOne}},
        Split{"Zero2InGroupsOfTwo", Architecture::kSteppedMoe, 4, {zero(2), kGroupsOfTwo}},
        Split{"BalanceLoss", Architecture::kSteppedMoe, 3, {zero(1), "model.routing.balance.kind=loss"}},
        Split{"BalanceBias", Architecture::kSteppedMoe, 2, {zero(2), "model.routing.balance.kind=bias"}},
        Split{"RandomMasks",
              Architecture::kSteppedMoe,
              3,
              {zero(1), "model.routing.mask_source=random", "budget_sampling=cyclic"}},
        Split{"SharedBackboneZero1OnThree",
              Architecture::kSteppedMoe,
              3,
              {zero(1), "model.size_embedding=router_only"}},
        Split{
            "SharedBackboneZero2OnTwo", Architecture::kSteppedMoe, 2, {zero(2), "model.size_embedding=none"}},
        Split{"VanillaZero1OnThree", Architecture::kVanillaMoe, 3, {zero(1)}},
        Split{"VanillaZero2OnTwo", Architecture::kVanillaMoe, 2, {zero(2)}},
        Split{"RecomputedZero1OnTwo",
              Architecture::kSteppedMoe,
              2,
              {zero(1), "activation_checkpointing.policy=all"}},
        Split{"RecomputedVanillaZero2OnTwo",
              Architecture::kVanillaMoe,
              2,
              {zero(2), "activation_checkpointing.policy=all"}},
        Split{"ClippedHardInGroupsOfTwo",
              Architecture::kDense,
              4,
              {zero(1), kGroupsOfTwo, "optimizer.clip_norm=0.01"}},
        Split{"DenseZero1OnTwo", Architecture::kDense, 2, {zero(1)}},
        Split{"DenseZero2OnFour", Architecture::kDense, 4, {zero(2)}}),
    [](const ::testing::TestParamInfo<Split>& split) { return split.param.name; });

class LostRank : public DistributedRun {
 protected:
  // Rank 1 of three gets `signal` while it trains; says how long the others take to end.
  void lose(int signal) {
    TrainConfig config = this->config(Architecture::kSteppedMoe);
    config.steps = 100000;
    config.distributed.timeout_seconds = kTimeout;
    LoopbackJob job(command(write(config), "run"), 3, folder_ / "ranks");
    const auto start = std::chrono::steady_clock::now();
    while (!fs::exists(folder_ / "run" / "metrics.jsonl") ||
           read_file(folder_ / "run" / "metrics.jsonl").empty()) {
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << job.text();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    job.rank(1).signal(signal);
    const auto lost = std::chrono::steady_clock::now();
    for (const size_t rank : {0, 2}) {
      EXPECT_EQ(job.rank(rank).wait(kLimit), 1) << job.text();
      EXPECT_THAT(job.rank(rank).text(),
                  AllOf(HasSubstr("error: "), HasSubstr("rank 1 does not answer any more")));
    }
    EXPECT_THAT(job.text(), AllOf(HasSubstr("operation `"), HasSubstr("of step ")));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - lost).count();
    EXPECT_LT(seconds, kTimeout + 1.0);
    EXPECT_THAT(read_file(folder_ / "run" / "log.txt"), HasSubstr("rank 1 does not answer any more"));
  }
};

TEST_F(LostRank, KilledEndsTheOthersInTime) { lose(SIGKILL); }
TEST_F(LostRank, StoppedEndsTheOthersInTime) { lose(SIGSTOP); }

TEST_F(DistributedRun, StopsTogetherWhenOneProcessGetsASignal) {
  TrainConfig config = this->config(Architecture::kSteppedMoe);
  config.steps = 100000;
  LoopbackJob job(command(write(config), "run"), 2, folder_ / "ranks");
  while (!fs::exists(folder_ / "run" / "metrics.jsonl"))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  job.rank(1).signal(SIGTERM);
  EXPECT_THAT(job.wait(kLimit), Each(128 + SIGTERM)) << job.text();
  EXPECT_THAT(job.rank(0).text(), HasSubstr("stopped by signal 15"));
  EXPECT_FALSE(list_checkpoints(folder_ / "run" / "checkpoints").empty());
}

TEST_F(DistributedRun, RollsBackTogetherUntilTheLimit) {
  TrainConfig base = config(Architecture::kDense);
  base.optimizer.learning_rate = 1e30;
  base.schedule.warmup_steps = 1;
  base.checkpoint.every_steps = 1;
  base.safety.on_non_finite = NonFiniteAction::kRollback;
  base.safety.max_rollbacks = 2;
  LoopbackJob job(command(write(base), "run", {zero(2)}), 2, folder_ / "ranks");
  const std::vector<int> statuses = job.wait(kLimit);
  EXPECT_EQ(std::count(statuses.begin(), statuses.end(), 0), 0);
  EXPECT_THAT(job.text(), HasSubstr("rolled back 2 times"));
}

TEST_F(DistributedRun, RefusesProcessesWithDifferentConfigs) {
  const std::string file = write(config(Architecture::kSteppedMoe));
  const std::vector<testing::Environment> ranks = testing::loopback_ranks(2);
  ChildProcess first(command(file, "run"), ranks[0], folder_ / "0.txt");
  ChildProcess second(command(file, "run", {"optimizer.learning_rate=0.5"}), ranks[1], folder_ / "1.txt");
  EXPECT_EQ(first.wait(kLimit), 2);
  EXPECT_EQ(second.wait(kLimit), 2);
  EXPECT_THAT(first.text(),
              AllOf(HasSubstr("rank 1: the config"), HasSubstr("optimizer.learning_rate"), HasSubstr("0.5")));
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(DistributedRun, RefusesProcessesWithDifferentData) {
  // The same prefix, but each process has a folder of its own with it.
  TrainConfig here = config(Architecture::kSteppedMoe);
  here.data.train = {{"one", "store", 1.0}};
  const std::string hash = sha256_of_file(here.data.tokenizer);
  const std::vector<testing::Environment> ranks = testing::loopback_ranks(2);
  std::vector<std::unique_ptr<ChildProcess>> processes;
  for (const std::string name : {"a", "b"}) {
    fs::create_directories(folder_ / name);
    testing::write_store(folder_ / name / "store", hash, 400, name == "a" ? 1 : 2);
    const std::string shell = "cd " + (folder_ / name).string() + " && exec " + kProgram + " " + write(here) +
                              " --set run_folder=" + (folder_ / "run").string();
    processes.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{"/bin/sh", "-c", shell},
                                                       ranks[processes.size()], folder_ / (name + ".txt")));
  }
  EXPECT_EQ(processes[0]->wait(kLimit), 2);
  EXPECT_EQ(processes[1]->wait(kLimit), 2);
  EXPECT_THAT(processes[0]->text(), HasSubstr("rank 1: the training data is not that of rank 0"));
}

TEST_F(DistributedRun, RefusesHalfALauncherAndJobsThatDoNotFit) {
  const std::string file = write(config(Architecture::kSteppedMoe));
  ChildProcess half(command(file, "run"), {{"RANK", "0"}, {"WORLD_SIZE", "2"}}, folder_ / "half.txt");
  EXPECT_EQ(half.wait(kLimit), 2);
  EXPECT_THAT(half.text(), HasSubstr("RANK, WORLD_SIZE but not LOCAL_RANK, MASTER_ADDR, MASTER_PORT"));
  LoopbackJob small(command(file, "run", {"batch_size=1", "micro_batch_size=1"}), 2, folder_ / "small");
  EXPECT_THAT(small.wait(kLimit), Each(2)) << small.text();
  EXPECT_THAT(small.rank(0).text(), HasSubstr("batch_size is 1, fewer sequences than the 2 processes"));
  LoopbackJob groups(command(file, "run", {"distributed.shard_group_size=2"}), 3, folder_ / "groups");
  EXPECT_THAT(groups.wait(kLimit), Each(2)) << groups.text();
  EXPECT_THAT(groups.rank(0).text(), HasSubstr("does not divide the 3 processes"));
}

TEST_F(DistributedRun, SecondJobOnOneFolderIsRefusedOnEveryRank) {
  TrainConfig config = this->config(Architecture::kDense);
  config.steps = 100000;
  const std::string file = write(config);
  LoopbackJob first(command(file, "run"), 2, folder_ / "first");
  while (!fs::exists(folder_ / "run" / "metrics.jsonl"))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  LoopbackJob second(command(file, "run"), 2, folder_ / "second");
  EXPECT_EQ(second.rank(0).wait(kLimit), 2);
  EXPECT_EQ(second.rank(1).wait(kLimit), 1);
  EXPECT_THAT(second.rank(1).text(), HasSubstr("another job is training in it"));
}

TEST_F(DistributedRun, MeetsBySlurmsVariables) {
  const TrainConfig base = config(Architecture::kSteppedMoe);
  const std::string file = write(base), port = std::to_string(testing::free_port());
  ChildProcess alone(command(file, "alone"), {}, folder_ / "alone.txt");
  ASSERT_EQ(alone.wait(kLimit), 0) << alone.text();
  std::vector<std::unique_ptr<ChildProcess>> tasks;
  for (const std::string rank : {"0", "1"}) {
    const testing::Environment variables = {{"SLURM_PROCID", rank},
                                            {"SLURM_NTASKS", "2"},
                                            {"SLURM_LOCALID", rank},
                                            {"SLURM_JOB_NODELIST", "127.0.0.1"},
                                            {"SLURM_STEP_TASKS_PER_NODE", "2"},
                                            {"MASTER_PORT", port}};
    tasks.push_back(
        std::make_unique<ChildProcess>(command(file, "split"), variables, folder_ / (rank + ".txt")));
  }
  for (const auto& task : tasks) ASSERT_EQ(task->wait(kLimit), 0) << task->text();
  EXPECT_LT(largest_weight_difference(folder_ / "alone", folder_ / "split"), kWeightBound);
}

// The real launcher, where it can be run.
TEST_F(DistributedRun, WorksUnderTorchrun) {
  const std::string torchrun = testing::find_torchrun();
  if (torchrun.empty())
    GTEST_SKIP() << "no torchrun works here (SMOE_TORCH_ROUTE=full tools/setup.sh, or set SMOE_TORCHRUN)";
  const TrainConfig base = config(Architecture::kSteppedMoe);
  const std::string file = write(base);
  ChildProcess alone(command(file, "alone"), {}, folder_ / "alone.txt");
  ASSERT_EQ(alone.wait(kLimit), 0) << alone.text();
  std::vector<std::string> words = {torchrun, "--no-python", "--standalone", "--nproc-per-node=2"};
  for (const std::string& word : command(file, "split")) words.push_back(word);
  ChildProcess job(words, {}, folder_ / "torchrun.txt");
  ASSERT_EQ(job.wait(kLimit), 0) << job.text();
  EXPECT_LT(largest_weight_difference(folder_ / "alone", folder_ / "split"), kWeightBound);
}

}  // namespace
}  // namespace smoe
