// Kills the real program with SIGKILL at random moments, most of them inside a save, and compares the end
// with that of a run that was left alone.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "smoe/core/config.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/train_state.h"
#include "train_test_support.h"

extern char** environ;

namespace smoe {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* kProgram = SMOE_BINARY_DIR "/bin/smoe-train";

// A running smoe-train whose output goes to a file.
class Job {
 public:
  Job(std::vector<std::string> arguments, const fs::path& output) {
    arguments.insert(arguments.begin(), kProgram);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0644);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    if (posix_spawn(&id_, kProgram, &actions, nullptr, pointers.data(), environ) != 0) id_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  bool started() const { return id_ > 0; }
  void signal(int number) const { ::kill(id_, number); }
  // Exit status, or 128 + signal.
  int wait() const {
    int status = 0;
    ::waitpid(id_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t id_ = -1;
};

int64_t newest_step(const fs::path& run) {
  const std::vector<fs::path> checkpoints = list_checkpoints(run / "checkpoints");
  return checkpoints.empty() ? 0 : std::stoll(checkpoints.back().filename().string().substr(5));
}

void wait_for_step(const fs::path& run, int64_t step) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (newest_step(run) < step && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(2ms);
}

std::string run_hash(const fs::path& run) {
  const fs::path checkpoint = resolve_checkpoint(run);
  return sha256_of_file(checkpoint / "model.safetensors") +
         sha256_of_file(checkpoint / "optimizer.safetensors");
}

class KilledRun : public ::testing::Test {
 protected:
  // A config file for a run of `steps` that saves after every step.
  std::string write_config(int64_t steps) {
    TrainConfig config = testing::tiny_run(folder_.path());
    config.steps = steps;
    config.checkpoint.every_steps = 1;
    config.validate_every_steps = 0;
    write_file_atomically(folder_ / "config.yaml", dump_config(config));
    return (folder_ / "config.yaml").string();
  }
  std::vector<std::string> arguments(const std::string& config, const fs::path& run) const {
    return {config, "--resume", "--set", "run_folder=" + run.string()};
  }
  testing::TemporaryFolder folder_;
};

TEST_F(KilledRun, EndsLikeOneThatWasLeftAlone) {
  const std::string config = write_config(80);
  const fs::path straight = folder_ / "straight";
  const fs::path killed = folder_ / "killed";
  const Job whole(arguments(config, straight), folder_ / "straight.txt");
  ASSERT_TRUE(whole.started()) << kProgram;
  ASSERT_EQ(whole.wait(), 0) << read_file(folder_ / "straight.txt");

  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 5; ++i) {
    const Job job(arguments(config, killed), folder_ / "killed.txt");
    wait_for_step(killed, newest_step(killed) + 2);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 150000));
    job.signal(SIGKILL);
    ASSERT_EQ(job.wait(), 128 + SIGKILL) << read_file(folder_ / "killed.txt");
    RecordProperty("killed_at_step_" + std::to_string(i), std::to_string(newest_step(killed)));
  }
  ASSERT_LT(newest_step(killed), 80);
  const Job last(arguments(config, killed), folder_ / "killed.txt");
  ASSERT_EQ(last.wait(), 0) << read_file(folder_ / "killed.txt");
  EXPECT_EQ(run_hash(straight), run_hash(killed));
}

TEST_F(KilledRun, SavesOnSigtermAndSaysSo) {
  const std::string config = write_config(100000);
  const fs::path run = folder_ / "run";
  const Job job(arguments(config, run), folder_ / "out.txt");
  wait_for_step(run, 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  const std::string step = std::to_string(newest_step(run));
  EXPECT_THAT(read_file(folder_ / "out.txt"),
              ::testing::HasSubstr("stopped by signal 15 after step " + step + ", which is saved"));
}

}  // namespace
}  // namespace smoe
