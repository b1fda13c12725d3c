// What clusters do to jobs, done to the real program: full and read-only disks, a second job, a clock that
// jumps. No checkpoint may be lost or half, and the end is that of a run that was left alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "log_capture.h"
#include "process_group_support.h"
#include "smoe/core/config.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/trainer.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::ChildProcess;
using testing::Environment;
using ::testing::HasSubstr;

constexpr const char* kProgram = SMOE_BINARY_DIR "/bin/smoe-train";
constexpr double kLimit = 120.0;

std::string run_hash(const fs::path& run) {
  const fs::path checkpoint = resolve_checkpoint(run);
  return checkpoint.filename().string() + sha256_of_file(checkpoint / "model.safetensors") +
         sha256_of_file(checkpoint / "optimizer.safetensors");
}

// Every checkpoint passes its checksums, and nothing half-written is left.
void expect_sound(const fs::path& run) {
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with(".")) << name << " is left over";
    if (checkpoint_step(entry.path())) verify_checkpoint(entry.path());
  }
}

// A file system of its own in memory, taken down with the object. Only root may mount one.
class SmallDisk {
 public:
  SmallDisk(fs::path path, const std::string& size) : path_(std::move(path)) {
    fs::create_directories(path_);
    is_mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (is_mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool is_mounted() const { return is_mounted_; }
  void resize(const std::string& size) const {
    ASSERT_EQ(::mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT, ("size=" + size).c_str()), 0);
  }

 private:
  fs::path path_;
  bool is_mounted_ = false;
};

// Takes away the right to write in a folder at one step and gives it back at another: from root by a
// read-only mount, from others by the folder's mode.
class ReadOnlyBetween : public TrainCallback {
 public:
  ReadOnlyBetween(fs::path folder, int64_t first, int64_t last)
      : folder_(std::move(folder)), first_(first), last_(last) {}
  ~ReadOnlyBetween() override { allow(); }
  void on_step(const StepReport& report) override {
    if (report.step == first_) forbid();
    if (report.step == last_) allow();
  }

 private:
  void forbid() {
    if (::geteuid() != 0) {
      fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
    } else if (::mount(folder_.c_str(), folder_.c_str(), nullptr, MS_BIND, nullptr) == 0) {
      is_mounted_ = true;
      EXPECT_EQ(::mount(nullptr, folder_.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr), 0);
    } else {
      ADD_FAILURE() << "root without the right to mount: run this test as another user";
    }
  }
  void allow() {
    if (is_mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
    if (::geteuid() != 0 && fs::exists(folder_)) fs::permissions(folder_, fs::perms::owner_all);
    is_mounted_ = false;
  }

  fs::path folder_;
  int64_t first_;
  int64_t last_;
  bool is_mounted_ = false;
};

class DisturbedRun : public ::testing::Test {
 protected:
  // 12 steps with checkpoints of about half a megabyte after 4, 8 and 12; the newest two stay.
  TrainConfig config_in(const fs::path& run) {
    TrainConfig config = testing::tiny_run(folder_.path());
    config.run_folder = run.string();
    return config;
  }
  std::string write_config(const TrainConfig& config) {
    const fs::path path = folder_ / (fs::path(config.run_folder).filename().string() + ".yaml");
    write_file_atomically(path, dump_config(config));
    return path.string();
  }
  std::string straight_hash() {
    const TrainConfig config = config_in(folder_ / "straight");
    TrainerOptions options;
    options.console = false;
    Trainer(config, options).run();
    return run_hash(config.run_folder);
  }
  int run(const std::vector<std::string>& command, const Environment& variables = {}) {
    ChildProcess process(command, variables, folder_ / "out.txt");
    const int status = process.wait(kLimit);
    output_ = process.text();
    return status;
  }
  testing::TemporaryFolder folder_;
  std::string output_;  // of the last run()
};

TEST_F(DisturbedRun, AFullDiskCostsTheLastStepAtMostAndTheRunGoesOnWhenThereIsSpace) {
  const SmallDisk disk(folder_ / "disk", "1300k");  // two checkpoints and a part of a third
  if (!disk.is_mounted()) GTEST_SKIP() << "no right to mount a small disk";
  const TrainConfig config = config_in(folder_ / "disk" / "run");
  const std::string file = write_config(config);
  EXPECT_EQ(run({kProgram, file}), 4) << output_;
  EXPECT_THAT(output_, AllOf(HasSubstr("No space left on device"), HasSubstr("last step 12"),
                             HasSubstr("that of step 8"), HasSubstr("--resume")));
  expect_sound(config.run_folder);
  EXPECT_EQ(resolve_checkpoint(config.run_folder).filename(), "step-00000008");
  disk.resize("8m");
  EXPECT_EQ(run({kProgram, file, "--resume"}), 0) << output_;
  expect_sound(config.run_folder);
  EXPECT_EQ(run_hash(config.run_folder), straight_hash());
}

TEST_F(DisturbedRun, AnEntirelyFullDiskDuringTheRunLosesNoFigureAndNoCheckpoint) {
  const SmallDisk disk(folder_ / "disk", "4m");
  if (!disk.is_mounted()) GTEST_SKIP() << "no right to mount a small disk";
  TrainConfig config = config_in(folder_ / "disk" / "run");
  TrainerOptions options;
  options.console = false;
  options.log_to_folder = false;
  // Another program fills the disk to the last byte at step 3 and goes away at step 9.
  class Filler : public TrainCallback {
   public:
    explicit Filler(fs::path path) : path_(std::move(path)) {}
    void on_step(const StepReport& report) override {
      if (report.step == 9) fs::remove(path_);
      if (report.step != 3) return;
      std::ofstream stream(path_, std::ios::binary);
      const std::string block(4096, 'x');
      while (stream.write(block.data(), 4096).flush()) {
      }
    }

   private:
    fs::path path_;
  };
  {
    Trainer trainer(config, options);
    trainer.add_callback(std::make_unique<Filler>(folder_ / "disk" / "filler"));
    trainer.run();
  }
  expect_sound(config.run_folder);
  EXPECT_EQ(run_hash(config.run_folder), straight_hash());
  std::ifstream stream(fs::path(config.run_folder) / "metrics.jsonl");
  int64_t steps = 0;
  for (std::string line; std::getline(stream, line);)
    steps += nlohmann::json::parse(line)["kind"] == "train" ? 1 : 0;
  EXPECT_EQ(steps, 12) << "no line is lost, none is half";
}

TEST_F(DisturbedRun, AFileSizeLimitActsLikeAFullDisk) {
  const TrainConfig config = config_in(folder_ / "run");
  const std::string file = write_config(config);
  // 250 KiB: room for the weights, not for the moments.
  EXPECT_EQ(run({"/bin/bash", "-c", std::string("ulimit -f 250; exec ") + kProgram + " " + file}), 4)
      << output_;
  EXPECT_THAT(output_, AllOf(HasSubstr("File too large"), HasSubstr("There is no other checkpoint")));
  expect_sound(config.run_folder);
  EXPECT_EQ(run({kProgram, file, "--resume"}), 0) << output_;
  EXPECT_EQ(run_hash(config.run_folder), straight_hash());
}

TEST_F(DisturbedRun, AFolderThatIsReadOnlyForAWhileCostsTheCheckpointsOfThatTime) {
  TrainConfig config = config_in(folder_ / "run");
  config.checkpoint.asynchronous = false;  // the save of step 4 is over when the folder becomes read-only
  const testing::LogCapture log;
  {
    TrainerOptions options;
    options.console = false;
    Trainer trainer(config, options);
    trainer.add_callback(
        std::make_unique<ReadOnlyBetween>(fs::path(config.run_folder) / "checkpoints", 6, 10));
    trainer.run();
  }
  expect_sound(config.run_folder);
  EXPECT_THAT(log.text(), HasSubstr("the checkpoint of step 8 could not be written"));
  EXPECT_EQ(run_hash(config.run_folder), straight_hash());
  EXPECT_TRUE(fs::exists(fs::path(config.run_folder) / "checkpoints" / "step-00000004"));
}

TEST_F(DisturbedRun, ASecondJobIsRefusedAndTheFirstGoesOn) {
  TrainConfig config = config_in(folder_ / "run");
  config.steps = 4000;
  const std::string file = write_config(config);
  ChildProcess first({kProgram, file}, {}, folder_ / "first.txt");
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (!fs::exists(folder_ / "run" / "checkpoints" / "step-00000004") &&
         std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(5ms);
  for (const char* more : {"--resume", "--dry-run"}) {
    EXPECT_EQ(run({kProgram, file, "--resume", more}), 2) << output_;
    EXPECT_THAT(output_, HasSubstr("another job is training in it"));
  }
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait(kLimit), 128 + SIGTERM) << first.text();
  expect_sound(config.run_folder);
}

TEST_F(DisturbedRun, AClockThatJumpsChangesDatesOnly) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "libfaketime cannot be loaded before AddressSanitizer, which has to come first";
#endif
  const fs::path library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
  if (!fs::exists(library)) GTEST_SKIP() << "needs libfaketime (Debian package of that name)";
  TrainConfig config = config_in(folder_ / "run");
  const std::string file = write_config(config);
  const fs::path clock = folder_ / "clock";
  const auto run_at = [&](const char* shift, std::vector<std::string> command) {
    write_file_atomically(clock, shift);
    return run(command, {{"LD_PRELOAD", library.string()},
                         {"FAKETIME_TIMESTAMP_FILE", clock.string()},
                         {"FAKETIME_NO_CACHE", "1"},
                         {"FAKETIME_DONT_FAKE_MONOTONIC", "1"}});
  };
  // A part of the run next year, the rest of it years before.
  ASSERT_EQ(run_at("+400d", {kProgram, file, "--set", "checkpoint.on_failure=stop"}), 0) << output_;
  const fs::path checkpoints = folder_ / "run" / "checkpoints";
  fs::remove_all(checkpoints / "step-00000012");
  ASSERT_EQ(run_at("-4000d", {kProgram, file, "--resume"}), 0) << output_;
  expect_sound(config.run_folder);
  EXPECT_EQ(run_hash(config.run_folder), straight_hash());
  std::vector<std::string> events;
  for (const auto& entry : fs::directory_iterator(folder_ / "run")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("events.out.tfevents.")) events.push_back(name);
  }
  std::sort(events.begin(), events.end());
  ASSERT_EQ(events.size(), 2);
  EXPECT_LT(fs::last_write_time(folder_ / "run" / events[0]),
            fs::last_write_time(folder_ / "run" / events[1]))
      << "TensorBoard reads the files by their names";
  const TrainState state = read_train_state(resolve_checkpoint(config.run_folder) / "train_state.json");
  EXPECT_GT(state.seconds, 0.0);
  EXPECT_LT(state.seconds, kLimit);
}

}  // namespace
}  // namespace smoe
