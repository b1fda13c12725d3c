// Failures of one process of several: numbers that are not finite in it alone, and its death where no
// operation runs. Each test starts this program again as the ranks of a job; they run the tests called
// DISABLED_Rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "process_group_support.h"
#include "run_comparison.h"
#include "smoe/train/join_job.h"
#include "smoe/train/train_state.h"
#include "smoe/train/trainer.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using testing::Environment;
using ::testing::HasSubstr;
using testing::LoopbackJob;
using ::testing::Not;

constexpr double kLimit = 120.0;
constexpr double kTimeout = 6.0;
constexpr int64_t kLastHealthyStep = 6;

const at::Tensor& tensor_of(Trainer& trainer, const std::string& name) {
  for (const NamedParameter& parameter : trainer.model().parameters()) {
    if (parameter.name == name) return parameter.tensor;
  }
  throw Error("no tensor " + name);
}

// Once, after the last healthy step: makes a tensor of this process NaN, or the next gradients of one.
class Sabotage : public TrainCallback {
 public:
  Sabotage(Trainer& trainer, std::string what) : trainer_(trainer), what_(std::move(what)) {}
  void on_step(const StepReport& report) override {
    if (report.step != kLastHealthyStep || done_) return;
    done_ = true;
    if (what_ == "gradient") {
      tensor_of(trainer_, "layers.0.attention.q_proj.weight")
          .register_hook([this](const at::Tensor& gradient) {
            return rolled_back_ || !gradient.defined() ? gradient : gradient * NAN;
          });
      return;
    }
    tensor_of(trainer_, what_ == "router" ? "mask_generator.proj.weight" : "final_norm.weight")
        .detach()
        .mul_(NAN);
  }
  void on_rollback(const RollbackReport& /*report*/) override { rolled_back_ = true; }

 private:
  Trainer& trainer_;
  std::string what_;
  bool done_ = false;
  bool rolled_back_ = false;
};

// ---- run by the ranks -------------------------------------------------------------------------

std::string setting(const char* name) { return environment_variable(name).value_or(""); }

TEST(DISABLED_Rank, Trains) {
  ConfigSource source;
  source.file = setting("SMOE_TEST_CONFIG");
  const TrainConfig config = read_config<TrainConfig>(source);
  const std::shared_ptr<Communicator> all = join_job(config);
  TrainerOptions options;
  options.console = false;
  options.communicator = all;
  const bool is_victim = all->rank() == 1;
  const std::string what = setting("SMOE_TEST_FAILURE");
  if (is_victim && what == "death") {
    options.before_checkpoint_file = [](const fs::path& path) {
      if (path.string().find("step-00000012") != std::string::npos) ::raise(SIGKILL);
    };
  }
  run_as_member(*all, [&] {
    Trainer trainer(config, options);
    if (is_victim && what != "death") trainer.add_callback(std::make_unique<Sabotage>(trainer, what));
    trainer.run();
    return 0;
  });
}

// ---- the tests ----------------------------------------------------------------------------------

struct Failure {
  std::string name;
  std::string what;    // of rank 1
  std::string reason;  // in the message
  int zero_stage = 1;
  Architecture architecture = Architecture::kSteppedMoe;
  bool has_balance_loss = false;
  bool is_in_validation = false;  // which comes before the next step
};

void PrintTo(const Failure& failure, std::ostream* stream) { *stream << failure.name; }

class FailureOfOne : public ::testing::TestWithParam<Failure> {
 protected:
  // 12 steps with checkpoints after 4 and 8.
  TrainConfig config_in(const std::string& run) {
    const Failure& failure = GetParam();
    TrainConfig config = testing::tiny_run(folder_.path(), failure.architecture);
    config.run_folder = (folder_ / run).string();
    config.micro_batch_size = 1;
    config.optimizer.epsilon = 1e-5;
    config.safety.on_non_finite = NonFiniteAction::kRollback;
    config.distributed.zero_stage = failure.zero_stage;
    config.distributed.bucket_mb = 0.02;
    config.distributed.timeout_seconds = 30.0;
    if (failure.is_in_validation) config.validate_every_steps = kLastHealthyStep;
    if (failure.has_balance_loss) config.model.routing.balance.kind = BalanceKind::kLoss;
    return config;
  }
  LoopbackJob start(const TrainConfig& config) {
    write_file_atomically(folder_ / "config.yaml", dump_config(config));
    return LoopbackJob(
        {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_Rank.Trains"}, 2,
        folder_ / "ranks",
        {{"SMOE_TEST_CONFIG", (folder_ / "config.yaml").string()}, {"SMOE_TEST_FAILURE", GetParam().what}});
  }
  testing::TemporaryFolder folder_;
};

TEST_P(FailureOfOne, RollsAllBackAndTheyEndLikeOneProcessThatFailedAlike) {
  const TrainConfig config = config_in("split");
  LoopbackJob job = start(config);
  ASSERT_THAT(job.wait(kLimit), Each(0)) << job.text();
  const TrainState state = read_train_state(resolve_checkpoint(config.run_folder) / "train_state.json");
  ASSERT_EQ(state.rollbacks.size(), 1);
  EXPECT_EQ(state.rollbacks[0].failed_step, kLastHealthyStep + 1);
  EXPECT_EQ(state.rollbacks[0].to_step, 4);
  EXPECT_EQ(state.step, 12);
  const std::string log = read_file(folder_ / "split" / "log.txt");
  EXPECT_THAT(log, AllOf(HasSubstr("It began on 1 of 2 processes: rank 1: " + GetParam().reason),
                         HasSubstr("Rolled back to step 4")));
  EXPECT_THAT(read_file(folder_ / "split" / "log-rank-1.txt"), HasSubstr("Rolled back to step 4"));

  TrainerOptions options;
  options.console = false;
  options.log_to_folder = false;
  Trainer trainer(config_in("alone"), options);
  // On its own a process adds up gradients past the hooks; what failed makes no difference to the rest.
  const std::string what = GetParam().what == "gradient" ? "loss" : GetParam().what;
  trainer.add_callback(std::make_unique<Sabotage>(trainer, what));
  trainer.run();
  // Adam magnifies roundings in 12 steps of 4e-3; other data or a missed update is off by more than 1e-2.
  EXPECT_LT(testing::largest_weight_difference(folder_ / "alone", folder_ / "split"), 1e-3);
}

TEST_P(FailureOfOne, StopsAllWithItsRankInTheMessageWhereRollbackIsOff) {
  TrainConfig config = config_in("split");
  config.safety.on_non_finite = NonFiniteAction::kStop;
  LoopbackJob job = start(config);
  EXPECT_THAT(job.wait(kLimit), Each(1)) << "gtest's status";
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(job.rank(rank).text(),
                AllOf(HasSubstr(GetParam().is_in_validation ? "validation after step 6: " : "step 7: "),
                      HasSubstr("It began on 1 of 2 processes: rank 1: " + GetParam().reason),
                      HasSubstr("The checkpoint of step 4 is untouched"), Not(HasSubstr("does not answer"))));
  }
}

const std::string kRouterReason = "routing logits of ";
INSTANTIATE_TEST_SUITE_P(
    Every, FailureOfOne,
    ::testing::Values(
        Failure{"Loss", "loss", "its share of the loss is nan"},
        Failure{"LossZero2", "loss", "its share of the loss is nan", 2},
        Failure{"LossVanilla", "loss", "its share of the loss is nan", 1, Architecture::kVanillaMoe},
        Failure{"Gradient", "gradient", "gradients of its own passes", 1},
        Failure{"GradientZero0", "gradient", "gradients of its own passes", 0},
        Failure{"GradientZero2", "gradient", "gradients of its own passes", 2},
        Failure{"Router", "router", kRouterReason, 1}, Failure{"RouterZero0", "router", kRouterReason, 0},
        Failure{"RouterZero2", "router", kRouterReason, 2},
        Failure{"RouterInValidation", "router", kRouterReason, 1, Architecture::kSteppedMoe, false, true},
        Failure{"LossInValidation", "loss", "its share of the loss of source held is nan", 1,
                Architecture::kSteppedMoe, false, true},
        Failure{"RouterBalanced", "router", kRouterReason, 1, Architecture::kSteppedMoe, true}),
    [](const ::testing::TestParamInfo<Failure>& failure) { return failure.param.name; });

class DeathOfOne : public FailureOfOne {};

// No operation runs while all wait for the last checkpoint, so that none can fail.
TEST_P(DeathOfOne, InTheLastSaveEndsTheOthersInTime) {
  TrainConfig config = config_in("run");
  config.distributed.timeout_seconds = kTimeout;
  LoopbackJob job = start(config);
  EXPECT_EQ(job.rank(1).wait(kLimit), 128 + SIGKILL) << job.text();
  const auto lost = std::chrono::steady_clock::now();
  EXPECT_EQ(job.rank(0).wait(kLimit), 1) << job.text();
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - lost).count(), kTimeout + 1.0);
  EXPECT_THAT(job.rank(0).text(), AllOf(HasSubstr("checkpoint of its last step 12"),
                                        HasSubstr("rank 1 does not answer any more"), HasSubstr("step 8")));
  for (const fs::path& path : list_checkpoints(folder_ / "run" / "checkpoints")) verify_checkpoint(path);
}

INSTANTIATE_TEST_SUITE_P(Every, DeathOfOne, ::testing::Values(Failure{"Death", "death", ""}),
                         [](const ::testing::TestParamInfo<Failure>& failure) { return failure.param.name; });

}  // namespace
}  // namespace smoe
