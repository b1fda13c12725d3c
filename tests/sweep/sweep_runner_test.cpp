#include "smoe/sweep/sweep_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "smoe/core/files.h"
#include "smoe/sweep/run_state.h"
#include "sweep_test_support.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

constexpr const char* kTwoRows =
    "seeds: [1, 2]\nrows:\n  - {name: a}\n  - {name: b, set: [steps=12]}\n"
    "evaluations:\n  - {name: core, tasks: [piqa]}\n";

class SweepRunner : public ::testing::Test {
 protected:
  SweepOutcome run(const std::string& sweep, int64_t jobs = 1, std::vector<std::string> only = {}) {
    SweepRunOptions options;
    options.tools = folder_ / "bin";
    options.jobs = jobs;
    options.only = std::move(only);
    const SweepPlan plan = plan_sweep(testing::write_sweep(folder_, sweep), {});
    return run_sweep(plan, options);
  }
  std::string calls() const {
    return std::filesystem::exists(folder_ / "calls") ? read_file(folder_ / "calls") : "";
  }
  RunStage stage(const std::string& sweep, size_t run) {
    const SweepPlan plan = plan_sweep(testing::write_sweep(folder_, sweep), {});
    return run_progress(plan, plan.runs[run]).stage;
  }

  TemporaryFolder folder_;
};

TEST_F(SweepRunner, TrainsAndEvaluatesEveryRunInOrder) {
  testing::write_programs(folder_);
  const SweepOutcome outcome = run(kTwoRows);
  EXPECT_EQ(outcome.finished, 4);
  EXPECT_EQ(outcome.failed, 0);
  EXPECT_EQ(calls(),
            "train a,seed=1 --resume\neval a,seed=1\ntrain a,seed=2 --resume\neval a,seed=2\n"
            "train b,seed=1 --resume\neval b,seed=1\ntrain b,seed=2 --resume\neval b,seed=2\n");
  EXPECT_EQ(stage(kTwoRows, 0), RunStage::kFinished);
}

TEST_F(SweepRunner, SkipsWhatIsFinished) {
  testing::write_programs(folder_);
  run(kTwoRows, 1, {"a"});
  const std::string before = calls();
  EXPECT_EQ(run(kTwoRows).finished, 4);
  EXPECT_EQ(calls().substr(before.size()),
            "train b,seed=1 --resume\neval b,seed=1\ntrain b,seed=2 --resume\neval b,seed=2\n");
}

TEST_F(SweepRunner, EvaluatesAgainWithoutTrainingWhenOnlyTheEvaluationChanges) {
  testing::write_programs(folder_);
  const std::string rest = "rows:\n  - {name: a}\nevaluations:\n  - {name: core, tasks: ";
  run(rest + "[piqa]}\n");
  const std::string before = calls();
  EXPECT_EQ(stage(rest + "[arc_easy]}\n", 0), RunStage::kTrained);
  run(rest + "[arc_easy]}\n");
  EXPECT_EQ(calls().substr(before.size()), "eval a,seed=1\n");
}

TEST_F(SweepRunner, ContinuesAfterAFailureAndTriesItAgain) {
  testing::write_programs(folder_,
                          "if [ $(basename \"$run\") = a,seed=1 ] && [ ! -e \"$run/tried\" ]; then "
                          "touch \"$run/tried\"; echo no luck; exit 3; fi");
  const SweepOutcome first = run(kTwoRows);
  EXPECT_EQ(first.failed, 1);
  EXPECT_EQ(first.finished, 3);
  EXPECT_EQ(stage(kTwoRows, 0), RunStage::kFailed);
  EXPECT_THAT(read_file(folder_ / "sweep/logs/a,seed=1.log"), HasSubstr("no luck"));
  EXPECT_EQ(run(kTwoRows).finished, 4);
}

TEST_F(SweepRunner, RunsSeveralAtATime) {
  // Each program waits for the other one to have started.
  testing::write_programs(folder_,
                          "touch \"$run/../$seed-is-here\"; for i in $(seq 100); do "
                          "[ -e \"$run/../1-is-here\" ] && [ -e \"$run/../2-is-here\" ] && break; "
                          "sleep 0.1; done; [ -e \"$run/../1-is-here\" ] && [ -e \"$run/../2-is-here\" ]");
  EXPECT_EQ(run("seeds: [1, 2]\nset: [num_threads=1]\n", 2).finished, 2);
}

TEST_F(SweepRunner, PassesASignalOnAndStartsNothingMore) {
  testing::write_programs(
      folder_, "trap 'exit 143' TERM; touch \"$run/started\"; for i in $(seq 100); do sleep 0.1; done");
  // The thread starts with these signals blocked, so that only the runner, which awaits them, receives them.
  sigset_t both, before;
  sigemptyset(&both);
  sigaddset(&both, SIGTERM);
  sigaddset(&both, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &both, &before);
  std::jthread killer([this] {
    for (int i = 0; i < 100 && !std::filesystem::exists(folder_ / "sweep/runs/a,seed=1/started"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ::kill(::getpid(), SIGTERM);
  });
  const SweepOutcome outcome = run(kTwoRows);
  killer.join();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(outcome.signal, SIGTERM);
  EXPECT_EQ(outcome.failed, 0);
  EXPECT_EQ(calls(), "train a,seed=1 --resume\n");
  EXPECT_EQ(stage(kTwoRows, 0), RunStage::kInterrupted);
}

TEST_F(SweepRunner, RefusesARunThatWasTrainedWithAnotherConfig) {
  testing::write_programs(folder_);
  run("rows:\n  - {name: a}\n");
  try {
    run("rows:\n  - {name: a, set: [batch_size=8]}\n");
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a,seed=1: was trained with another config"));
    EXPECT_THAT(error.what(), HasSubstr("batch_size: 4 -> 8"));
  }
}

TEST_F(SweepRunner, KnowsARunAgainThatDiffersInNothingThatChangesItsResults) {
  testing::write_programs(folder_);
  run("rows:\n  - {name: a}\n");
  const std::string first = calls();
  const std::string other =
      "rows:\n  - {name: a, set: [num_threads=1, log_every_steps=3, checkpoint.keep_last=7]}\n";
  EXPECT_EQ(stage(other, 0), RunStage::kFinished);
  EXPECT_EQ(run(other).finished, 1);
  EXPECT_EQ(calls(), first);
}

// The config file of a version that did not have the key yet.
TEST_F(SweepRunner, KnowsARunOfAnEarlierVersionAgain) {
  testing::write_programs(folder_);
  const std::string rows = "rows:\n  - {name: a}\n";
  run(rows);
  std::string config = read_file(folder_ / "sweep/configs/a,seed=1.yaml");
  const size_t begin = config.find("    selector_position: first\n");
  ASSERT_NE(begin, std::string::npos);
  config.erase(begin, config.find('\n', begin) + 1 - begin);
  folder_.write("sweep/configs/a,seed=1.yaml", config);
  std::string state = read_file(folder_ / "sweep/states/a,seed=1.json");
  const size_t hash = state.find("config_hash\": \"") + 15;
  state.replace(hash, 64, std::string(64, '0'));
  folder_.write("sweep/states/a,seed=1.json", state);
  EXPECT_EQ(stage(rows, 0), RunStage::kFinished);
  EXPECT_EQ(stage("rows:\n  - {name: a, set: [model.routing.selector_position=previous_last]}\n", 0),
            RunStage::kOtherConfig);
}

TEST_F(SweepRunner, NamesTheRunsThereAreForAnUnknownOne) {
  testing::write_programs(folder_);
  EXPECT_THROW(run(kTwoRows, 1, {"c"}), ConfigError);
  EXPECT_THROW(run(kTwoRows, 1, {"4"}), ConfigError);
  EXPECT_EQ(run(kTwoRows, 1, {"3", "b,seed=2"}).finished, 1);
  EXPECT_EQ(calls(), "train b,seed=2 --resume\neval b,seed=2\n");
}

TEST_F(SweepRunner, NeedsThePrograms) {
  try {
    run(kTwoRows);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("smoe-train is no program"));
  }
}

TEST_F(SweepRunner, StatusEstimatesTheTimeLeftFromTheRunsSoFar) {
  testing::write_programs(folder_);
  const std::string rest = "seeds: [1, 2, 3]\nevaluations:\n  - {name: core, tasks: [piqa]}\n";
  run(rest, 1, {"0"});
  const std::string text = describe_progress(plan_sweep(testing::write_sweep(folder_, rest), {}), 1);
  EXPECT_THAT(text, HasSubstr("1 of 3 runs are finished; about 40s of training are left"));
  EXPECT_THAT(text, HasSubstr("10/10"));
}

TEST_F(SweepRunner, SlurmScriptHasATaskARun) {
  const std::vector<std::string> overrides = {"seeds=[1]", "set=[steps=12]"};
  const SweepPlan plan = plan_sweep(testing::write_sweep(folder_, kTwoRows), overrides);
  const std::string script = slurm_script(plan, folder_ / "sweep.yaml", overrides, "/opt/smoe/smoe-sweep");
  EXPECT_THAT(script, HasSubstr("#SBATCH --array=0-1\n"));
  EXPECT_THAT(script, HasSubstr("--set 'seeds=[1]' --set 'set=[steps=12]'"));
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "sweep/logs"));
  EXPECT_THAT(script, HasSubstr("'/opt/smoe/smoe-sweep' run"));
  EXPECT_THAT(script, HasSubstr("--only \"$SLURM_ARRAY_TASK_ID\""));
}

}  // namespace
}  // namespace smoe
