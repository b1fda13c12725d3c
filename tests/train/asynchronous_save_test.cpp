// Saving beside training: the same bytes, no waiting, and failures that cost nothing but the one checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "log_capture.h"
#include "smoe/core/error.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/metrics_log.h"
#include "smoe/train/trainer.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

TrainerOptions quiet(bool resume = false) {
  TrainerOptions options;
  options.resume = resume;
  options.console = false;
  options.log_to_folder = false;
  return options;
}

std::string hash_of_step(const fs::path& run, int64_t step) {
  const fs::path checkpoint = run / "checkpoints" / fmt::format("step-{:08}", step);
  return sha256_of_file(checkpoint / "model.safetensors") +
         sha256_of_file(checkpoint / "optimizer.safetensors");
}

std::vector<std::string> checkpoint_names(const fs::path& run) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Counts the steps that the trainer has reported.
class StepCounter : public TrainCallback {
 public:
  explicit StepCounter(std::atomic<int64_t>& steps) : steps_(steps) {}
  void on_step(const StepReport& report) override { steps_ = report.step; }

 private:
  std::atomic<int64_t>& steps_;
};

class SignalAt : public TrainCallback {
 public:
  explicit SignalAt(int64_t step) : step_(step) {}
  void on_step(const StepReport& report) override {
    if (report.step == step_) ::raise(SIGTERM);
  }

 private:
  int64_t step_;
};

class AsynchronousSave : public ::testing::Test {
 protected:
  // A run that keeps all checkpoints: 4, 8 and 12.
  TrainConfig config_in(const std::string& run) {
    TrainConfig config = testing::tiny_run(folder_.path());
    config.run_folder = (folder_ / run).string();
    config.checkpoint.keep_last = 0;
    return config;
  }
  testing::TemporaryFolder folder_;
};

TEST_F(AsynchronousSave, WritesWhatSynchronousSavingWritesWhileTrainingGoesOn) {
  TrainConfig config = config_in("synchronous");
  config.checkpoint.asynchronous = false;
  Trainer(config, quiet()).run();

  config = config_in("asynchronous");
  std::atomic<int64_t> steps = 0;
  std::atomic<int> num_writing = 0;
  std::atomic<bool> overlapped = false;
  std::atomic<bool> waited_in_vain = false;
  TrainerOptions options = quiet();
  options.before_checkpoint_file = [&](const fs::path& path) {
    overlapped = overlapped || ++num_writing > 1;
    // The write of step 4 does not begin before step 6 is done.
    const bool is_first = path.parent_path().filename().string().starts_with(".step-00000004");
    for (int i = 0; is_first && steps < 6 && i < 5000; ++i) std::this_thread::sleep_for(2ms);
    if (is_first && steps < 6) waited_in_vain = true;
    --num_writing;
  };
  Trainer trainer(config, options);
  trainer.add_callback(std::make_unique<StepCounter>(steps));
  trainer.run();
  EXPECT_FALSE(waited_in_vain) << "training stood still during a save";
  EXPECT_FALSE(overlapped) << "two saves at a time";
  for (const int64_t step : {4, 8, 12})
    EXPECT_EQ(hash_of_step(folder_ / "synchronous", step), hash_of_step(folder_ / "asynchronous", step));
}

TEST_F(AsynchronousSave, ASaveThatFailsIsReportedAndTheNextOneIsMade) {
  const TrainConfig config = config_in("run");
  const testing::LogCapture log;
  TrainerOptions options = quiet();
  options.before_checkpoint_file = [&](const fs::path& path) {
    if (path.string().find("step-00000008") != std::string::npos) throw Error("the disk is full");
  };
  Trainer(config, options).run();
  EXPECT_EQ(checkpoint_names(config.run_folder),
            (std::vector<std::string>{"step-00000004", "step-00000012"}));
  EXPECT_THAT(log.text(), AllOf(HasSubstr("error the checkpoint of step 8 could not be written"),
                                HasSubstr("the disk is full"), HasSubstr("that of step 4"),
                                HasSubstr("tries again at the next save")));
}

// A disk that turns read-only during a save keeps that save's folder; the run goes on.
TEST_F(AsynchronousSave, WhatAFailedSaveLeftBehindIsRemovedByTheNextOne) {
  const TrainConfig config = config_in("run");
  const testing::LogCapture log;
  TrainerOptions options = quiet();
  options.before_checkpoint_file = [&](const fs::path& path) {
    if (path.string().find("step-00000008") == std::string::npos) return;
    fs::create_directories(path.parent_path().parent_path() / ".step-00000008.tmp-1-1" / "inner");
    throw Error("the disk is read-only");
  };
  Trainer(config, options).run();
  EXPECT_EQ(checkpoint_names(config.run_folder),
            (std::vector<std::string>{"step-00000004", "step-00000012"}));
  EXPECT_THAT(log.text(), AllOf(HasSubstr(".step-00000008.tmp-1-1"), HasSubstr("was cut short")));
}

TEST_F(AsynchronousSave, IfTheLastSaveFailsTheRunEndsWithAnErrorAndCanGoOn) {
  TrainConfig config = config_in("straight");
  Trainer(config, quiet()).run();
  config = config_in("run");
  TrainerOptions options = quiet();
  options.before_checkpoint_file = [&](const fs::path& path) {
    if (path.string().find("step-00000012") != std::string::npos) throw Error("the disk is full");
  };
  try {
    Trainer(config, options).run();
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("without the checkpoint of its last step 12"), HasSubstr("the disk is full"),
                      HasSubstr("that of step 8"), HasSubstr("--resume")));
  }
  EXPECT_EQ(checkpoint_names(config.run_folder),
            (std::vector<std::string>{"step-00000004", "step-00000008"}));
  Trainer(config, quiet(true)).run();
  EXPECT_EQ(hash_of_step(folder_ / "straight", 12), hash_of_step(folder_ / "run", 12));
}

TEST_F(AsynchronousSave, WithOnFailureStopTheRunEndsAtTheStepThatLearnsOfIt) {
  for (const bool asynchronous : {true, false}) {
    TrainConfig config = config_in(asynchronous ? "asynchronous" : "synchronous");
    config.checkpoint.asynchronous = asynchronous;
    config.checkpoint.on_failure = SaveFailure::kStop;
    TrainerOptions options = quiet();
    options.before_checkpoint_file = [](const fs::path&) { throw Error("the disk is full"); };
    Trainer trainer(config, options);
    try {
      trainer.run();
      FAIL() << "no error";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("the checkpoint of step 4"), HasSubstr("the disk is full"),
                                      HasSubstr("checkpoint.on_failure: stop")));
    }
    EXPECT_LE(trainer.state().step, asynchronous ? 8 : 4);
  }
}

TEST_F(AsynchronousSave, AMissedStopDeadlineIsReportedAndTheSaveStillEnds) {
  TrainConfig config = config_in("run");
  config.checkpoint.stop_deadline_seconds = 0.05;
  const testing::LogCapture log;
  TrainerOptions options = quiet();
  options.before_checkpoint_file = [](const fs::path&) { std::this_thread::sleep_for(300ms); };
  Trainer trainer(config, options);
  trainer.add_callback(std::make_unique<SignalAt>(2));
  EXPECT_EQ(trainer.run().signal, SIGTERM);
  EXPECT_EQ(checkpoint_names(config.run_folder), (std::vector<std::string>{"step-00000002"}));
  EXPECT_THAT(log.text(), AllOf(HasSubstr("checkpoint.stop_deadline_seconds: 0.05 s after the signal"),
                                HasSubstr("the checkpoint of step 2 is still being written")));
}

TEST_F(AsynchronousSave, AStopDeadlineIsAlsoMissedByTheSaveBefore) {
  TrainConfig config = config_in("run");
  config.checkpoint.stop_deadline_seconds = 0.05;
  const testing::LogCapture log;
  std::string log_when_it_ended;
  TrainerOptions options = quiet();
  options.before_checkpoint_file = [&](const fs::path& path) {
    std::this_thread::sleep_for(500ms);
    if (path.string().find("step-00000004") != std::string::npos) log_when_it_ended = log.text();
  };
  Trainer trainer(config, options);
  trainer.add_callback(std::make_unique<SignalAt>(5));
  EXPECT_EQ(trainer.run().signal, SIGTERM);
  EXPECT_THAT(log_when_it_ended, HasSubstr("the checkpoint of step 4 is still being written"));
  EXPECT_THAT(log.text(), HasSubstr("the checkpoint of step 5 is still being written"));
}

TEST_F(AsynchronousSave, AMetDeadlineIsNotMentioned) {
  TrainConfig config = config_in("run");
  config.checkpoint.stop_deadline_seconds = 60.0;
  const testing::LogCapture log;
  Trainer trainer(config, quiet());
  trainer.add_callback(std::make_unique<SignalAt>(2));
  EXPECT_EQ(trainer.run().signal, SIGTERM);
  EXPECT_THAT(log.text(), ::testing::Not(HasSubstr("deadline")));
}

TEST_F(AsynchronousSave, ReportsHowLongTrainingStoodStill) {
  const TrainConfig config = config_in("run");
  TrainerOptions options = quiet();
  Trainer(config, options).run();
  std::ifstream stream(fs::path(config.run_folder) / "metrics.jsonl");
  std::vector<int64_t> steps;
  for (std::string line; std::getline(stream, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json["kind"] != "checkpoint") continue;
    steps.push_back(json["step"]);
    EXPECT_GE(json["blocked_s"].get<double>(), 0.0);
    EXPECT_EQ(json["asynchronous"], true);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{4, 8}));
}

// Files of this process cannot grow beyond `bytes` while an object lives, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(uint64_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

TEST(MetricsLog, AFullDiskDuringARollbackCostsNoLine) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  const testing::LogCapture log;
  {
    MetricsLog metrics(path, 0);
    SaveReport report;
    for (report.step = 1; report.step <= 3; ++report.step) metrics.on_save(report);
    {
      const FullDisk full(10);
      metrics.on_rollback({4, 1, 8, 20, "not finite"});
    }
    report.step = 2;
    metrics.on_save(report);
  }
  std::ifstream stream(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    lines.push_back(fmt::format("{} {}", json["kind"].get<std::string>(), json["step"].get<int>()));
  }
  EXPECT_EQ(lines, (std::vector<std::string>{"checkpoint 1", "checkpoint 2", "checkpoint 3", "rollback 2",
                                             "checkpoint 2"}));
  EXPECT_THAT(log.text(), HasSubstr("the lines of steps after 1, which the rollback made void, stay"));
}

TEST(MetricsLog, LinesThatDoNotFitOnTheDiskAreWrittenLater) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  const testing::LogCapture log;
  {
    MetricsLog metrics(path, 0);
    SaveReport report;
    report.step = 1;
    metrics.on_save(report);
    const uint64_t size = fs::file_size(path);
    {
      const FullDisk full(size + 10);  // room for a part of a line
      for (report.step = 2; report.step <= 3; ++report.step) metrics.on_save(report);
      EXPECT_EQ(fs::file_size(path), size) << "half a line is left in the file";
    }
    metrics.on_save(report);
  }
  std::ifstream stream(path);
  std::vector<int64_t> steps;
  for (std::string line; std::getline(stream, line);) steps.push_back(nlohmann::json::parse(line)["step"]);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_THAT(log.text(), AllOf(HasSubstr("metrics.jsonl: cannot be written: File too large"),
                                HasSubstr("can be written again")));
}

}  // namespace
}  // namespace smoe
