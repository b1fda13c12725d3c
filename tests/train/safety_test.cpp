// The safety net: rollbacks after losses that are not finite or jump.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <fstream>

#include "log_capture.h"
#include "smoe/core/error.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/trainer.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TrainerOptions quiet(bool resume = false) {
  TrainerOptions options;
  options.resume = resume;
  options.console = false;
  options.log_to_folder = false;
  return options;
}

std::string final_hash(const fs::path& run) {
  const fs::path checkpoint = resolve_checkpoint(run);
  return sha256_of_file(checkpoint / "model.safetensors") +
         sha256_of_file(checkpoint / "optimizer.safetensors");
}

std::vector<nlohmann::json> lines_of_kind(const fs::path& run, const std::string& kind) {
  std::ifstream stream(run / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(stream, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    if (json["kind"] == kind) lines.push_back(std::move(json));
  }
  return lines;
}

// After the given steps, each time it comes by until it has done so `times` times, multiplies a tensor, the
// final gain unless another is named: by NaN, or by a number that makes the loss jump.
class Sabotage : public TrainCallback {
 public:
  Sabotage(Trainer& trainer, int64_t step, double factor, int times = 1,
           std::string tensor = "final_norm.weight")
      : trainer_(trainer), step_(step), factor_(factor), times_(times), tensor_(std::move(tensor)) {}
  void on_step(const StepReport& report) override {
    if (report.step != step_ || times_ == 0) return;
    --times_;
    for (const NamedParameter& parameter : trainer_.model().parameters()) {
      if (parameter.name == tensor_) parameter.tensor.detach().mul_(factor_);
    }
  }

 private:
  Trainer& trainer_;
  int64_t step_;
  double factor_;
  int times_;
  std::string tensor_;
};

class StopAt : public TrainCallback {
 public:
  explicit StopAt(int64_t step) : step_(step) {}
  void on_step(const StepReport& report) override {
    if (report.step == step_) ::raise(SIGTERM);
  }

 private:
  int64_t step_;
};

// Ends the run in the second step after a rollback.
class ThrowAfterRollback : public TrainCallback {
 public:
  void on_rollback(const RollbackReport& report) override { last_step_ = report.to_step + 2; }
  void on_step(const StepReport& report) override {
    if (report.step == last_step_) throw std::runtime_error("killed");
  }

 private:
  int64_t last_step_ = -1;
};

class SafetyNet : public ::testing::Test {
 protected:
  // 12 steps of 4 sequences with checkpoints after 4 and 8.
  TrainConfig config_in(const std::string& run) {
    TrainConfig config = testing::tiny_run(folder_.path());
    config.run_folder = (folder_ / run).string();
    config.safety.on_non_finite = NonFiniteAction::kRollback;
    config.safety.skip_steps = 2;
    return config;
  }
  TrainState state_of(const std::string& run) {
    return read_train_state(resolve_checkpoint(folder_ / run) / "train_state.json");
  }
  testing::TemporaryFolder folder_;
};

// The message of the NumericError that ends the run.
std::string numeric_error_of(Trainer& trainer) {
  try {
    trainer.run();
  } catch (const NumericError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(SafetyNet, RollsBackAndGoesOnBehindTheDataOfTheFailedSteps) {
  const TrainConfig config = config_in("run");
  const testing::LogCapture log;
  {
    Trainer trainer(config, quiet());
    trainer.add_callback(std::make_unique<Sabotage>(trainer, 6, NAN));
    trainer.run();
  }
  const TrainState state = state_of("run");
  ASSERT_EQ(state.rollbacks.size(), 1);
  EXPECT_EQ(state.rollbacks[0].failed_step, 7);
  EXPECT_EQ(state.rollbacks[0].to_step, 4);
  EXPECT_EQ(state.rollbacks[0].from_position, 16);
  EXPECT_EQ(state.rollbacks[0].to_position, 36) << "steps 5 to 7 and two more";
  EXPECT_EQ(state.step, 12);
  EXPECT_EQ(state.position, 36 + 8 * 4);
  const auto rollbacks = lines_of_kind(config.run_folder, "rollback");
  ASSERT_EQ(rollbacks.size(), 1);
  EXPECT_EQ(rollbacks[0]["failed_step"], 7);
  EXPECT_THAT(rollbacks[0]["reason"].get<std::string>(), HasSubstr("final_norm.weight"));
  EXPECT_EQ(lines_of_kind(config.run_folder, "train").size(), 12) << "each step once";
  EXPECT_THAT(log.text(), AllOf(HasSubstr("Rolled back to step 4"), HasSubstr("16 to 35 are left out")));

  // The same by hand: the healthy checkpoint of step 4, its position moved.
  TrainConfig by_hand = config_in("by_hand");
  {
    Trainer trainer(by_hand, quiet());
    trainer.add_callback(std::make_unique<StopAt>(4));
    trainer.run();
  }
  const fs::path checkpoint = resolve_checkpoint(folder_ / "by_hand");
  auto json = nlohmann::json::parse(read_file(checkpoint / "train_state.json"));
  json["position"] = 36;
  write_file_atomically(checkpoint / "train_state.json", json.dump());
  write_checksums(checkpoint);
  Trainer(by_hand, quiet(true)).run();
  EXPECT_EQ(final_hash(folder_ / "run"), final_hash(folder_ / "by_hand"));
}

// The update of step 5 breaks the model, and the validation of step 5 comes before step 6.
TEST_F(SafetyNet, AValidationOfABrokenModelRollsBackOrStopsLikeAStep) {
  for (const char* tensor : {"final_norm.weight", "mask_generator.proj.weight"}) {
    const TrainConfig config = config_in(tensor);
    Trainer trainer(config, quiet());
    trainer.add_callback(std::make_unique<Sabotage>(trainer, 5, NAN, 1, tensor));
    trainer.run();
    ASSERT_EQ(trainer.state().rollbacks.size(), 1) << tensor;
    EXPECT_EQ(trainer.state().rollbacks[0].failed_step, 6);
    EXPECT_EQ(trainer.state().rollbacks[0].to_step, 4);
    for (const nlohmann::json& line : lines_of_kind(config.run_folder, "validation"))
      EXPECT_TRUE(line["mean_loss"].is_number()) << line;
    EXPECT_TRUE(std::isfinite(trainer.state().best_validation_loss.value()));

    TrainConfig stopping = config_in(std::string(tensor) + "-stops");
    stopping.safety.on_non_finite = NonFiniteAction::kStop;
    Trainer other(stopping, quiet());
    other.add_callback(std::make_unique<Sabotage>(other, 5, NAN, 1, tensor));
    EXPECT_THAT(numeric_error_of(other),
                AllOf(HasSubstr("validation after step 5: mean loss nan"), HasSubstr(tensor),
                      HasSubstr("The checkpoint of step 4 is untouched")));
  }
}

TEST_F(SafetyNet, ARunThatIsStoppedAfterARollbackAndResumedEndsAlike) {
  const auto train = [&](const TrainConfig& config, int64_t stop) {
    Trainer trainer(config, quiet());
    trainer.add_callback(std::make_unique<Sabotage>(trainer, 6, NAN));
    if (stop > 0) trainer.add_callback(std::make_unique<StopAt>(stop));
    trainer.run();
  };
  train(config_in("straight"), 0);
  for (const int64_t stop : {7, 9}) {
    const TrainConfig config = config_in("stopped" + std::to_string(stop));
    train(config, stop);
    Trainer(config, quiet(true)).run();
    EXPECT_EQ(final_hash(folder_ / "straight"), final_hash(config.run_folder)) << "after step " << stop;
    EXPECT_EQ(lines_of_kind(config.run_folder, "rollback").size(), 1);
  }
}

TEST_F(SafetyNet, ARunThatIsKilledBetweenRollbackAndSaveRollsBackAgainAndEndsAlike) {
  const TrainConfig straight = config_in("straight");
  {
    Trainer trainer(straight, quiet());
    trainer.add_callback(std::make_unique<Sabotage>(trainer, 6, NAN));
    trainer.run();
  }
  const TrainConfig config = config_in("killed");
  {
    // As good as a kill: taken down in step 6 after the rollback, before the next save.
    Trainer trainer(config, quiet());
    trainer.add_callback(std::make_unique<Sabotage>(trainer, 6, NAN));
    trainer.add_callback(std::make_unique<ThrowAfterRollback>());
    EXPECT_THROW(trainer.run(), std::runtime_error);
  }
  {
    Trainer trainer(config, quiet(true));
    trainer.add_callback(std::make_unique<Sabotage>(trainer, 6, NAN));
    trainer.run();
  }
  EXPECT_EQ(final_hash(straight.run_folder), final_hash(config.run_folder));
  EXPECT_EQ(lines_of_kind(config.run_folder, "rollback").size(), 1);
}

TEST_F(SafetyNet, ALossSpikeRollsBackOnlyWhereItIsAskedFor) {
  for (const SpikeAction action : {SpikeAction::kNone, SpikeAction::kStop, SpikeAction::kRollback}) {
    TrainConfig config = config_in(std::string(enum_to_name(action)));
    config.safety.on_loss_spike = action;
    config.safety.spike_window = 8;
    config.safety.spike_sigmas = 8.0;
    Trainer trainer(config, quiet());
    trainer.add_callback(std::make_unique<Sabotage>(trainer, 9, 60.0));
    if (action == SpikeAction::kStop) {
      try {
        trainer.run();
        FAIL() << "no error";
      } catch (const NumericError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("step 10: the loss"), HasSubstr("safety.spike_sigmas = 8"),
                                        HasSubstr("No update was made")));
      }
    } else {
      trainer.run();
      EXPECT_EQ(trainer.state().rollbacks.size(), action == SpikeAction::kRollback ? 1 : 0);
    }
  }
}

TEST_F(SafetyNet, StopsWithoutACheckpointToRollBackTo) {
  Trainer trainer(config_in("run"), quiet());
  trainer.add_callback(std::make_unique<Sabotage>(trainer, 2, NAN));
  EXPECT_THAT(numeric_error_of(trainer),
              AllOf(HasSubstr("step 3"), HasSubstr("holds no usable checkpoint yet")));
}

TEST_F(SafetyNet, ARollbackHidesNoFailedSaveFromARunThatStopsAtOne) {
  TrainConfig config = config_in("run");
  config.checkpoint.on_failure = SaveFailure::kStop;
  TrainerOptions options = quiet();
  options.before_checkpoint_file = [](const fs::path& path) {
    if (path.string().find("step-00000008") != std::string::npos) throw Error("the disk is full");
  };
  Trainer trainer(config, options);
  trainer.add_callback(std::make_unique<Sabotage>(trainer, 8, NAN));  // step 9 fails beside the save
  try {
    trainer.run();
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the checkpoint of step 8"), HasSubstr("the disk is full"),
                                    HasSubstr("checkpoint.on_failure: stop")));
  }
}

TEST_F(SafetyNet, StopsAfterTheLargestNumberOfRollbacks) {
  TrainConfig config = config_in("run");
  config.safety.max_rollbacks = 2;
  Trainer trainer(config, quiet());
  trainer.add_callback(std::make_unique<Sabotage>(trainer, 6, NAN, 5));
  EXPECT_THAT(numeric_error_of(trainer),
              AllOf(HasSubstr("rolled back 2 times"), HasSubstr("safety.max_rollbacks")));
  EXPECT_EQ(lines_of_kind(config.run_folder, "rollback").size(), 2);
}

TEST_F(SafetyNet, PassesOverACheckpointWhoseWeightsWereNotFiniteAnyMore) {
  TrainConfig config = config_in("run");
  Trainer trainer(config, quiet());
  trainer.add_callback(std::make_unique<Sabotage>(trainer, 8, NAN));  // and then step 8 is saved
  trainer.run();
  ASSERT_EQ(trainer.state().rollbacks.size(), 1);
  EXPECT_EQ(trainer.state().rollbacks[0].to_step, 4);
  EXPECT_TRUE(fs::exists(folder_ / "run" / "checkpoints" / "superseded-1-step-00000008"));
}

TEST(TrainState, ReadsTheStateOfVersionsWithoutRollbacks) {
  const testing::TemporaryFolder folder;
  TrainState state;
  state.step = 7;
  state.rollbacks = {{9, 7, 28, 40}};
  auto json = nlohmann::json::parse(train_state_to_json(state));
  write_file_atomically(folder / "new.json", json.dump());
  const TrainState same = read_train_state(folder / "new.json");
  ASSERT_EQ(same.rollbacks.size(), 1);
  EXPECT_EQ(same.rollbacks[0].to_position, 40);
  json.erase("rollbacks");
  json.erase("spike_losses");
  write_file_atomically(folder / "old.json", json.dump());
  EXPECT_EQ(read_train_state(folder / "old.json").step, 7);
  json["rollbacks"] = 3;
  write_file_atomically(folder / "broken.json", json.dump());
  EXPECT_THROW(read_train_state(folder / "broken.json"), CheckpointError);
}

}  // namespace
}  // namespace smoe
