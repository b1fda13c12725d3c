#include "smoe/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "smoe/core/error.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/stop_signal.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TrainerOptions quiet(bool resume = false, const std::string& resume_from = "") {
  TrainerOptions options;
  options.resume = resume;
  options.resume_from = resume_from;
  options.console = false;
  options.log_to_folder = false;
  return options;
}

// Every file of the run's newest checkpoint that training decides, by its hash.
std::string checkpoint_hash(const fs::path& run) {
  const fs::path checkpoint = resolve_checkpoint(run);
  return sha256_of_file(checkpoint / "model.safetensors") +
         sha256_of_file(checkpoint / "optimizer.safetensors");
}

std::vector<nlohmann::json> metrics_lines(const fs::path& run) {
  std::ifstream stream(run / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// The metrics without what depends on the clock, and without the saves: a stop makes one more.
std::vector<nlohmann::json> timeless_metrics(const fs::path& run) {
  std::vector<nlohmann::json> lines = metrics_lines(run);
  std::erase_if(lines, [](const nlohmann::json& line) { return line["kind"] == "checkpoint"; });
  for (nlohmann::json& line : lines) {
    for (const char* key :
         {"seconds", "processed_tokens_per_s", "unique_tokens_per_s", "peak_memory_bytes"}) {
      line.erase(key);
    }
  }
  return lines;
}

// Ends the run after a step, as a signal does.
class SignalAfter : public TrainCallback {
 public:
  SignalAfter(int64_t step, int number) : step_(step), number_(number) {}
  void on_step(const StepReport& report) override {
    if (report.step == step_) ::raise(number_);
  }

 private:
  int64_t step_;
  int number_;
};

int run_until(const TrainConfig& config, int64_t step, const TrainerOptions& options, int number = SIGTERM) {
  Trainer trainer(config, options);
  trainer.add_callback(std::make_unique<SignalAfter>(step, number));
  return trainer.run().signal;
}

// The run stops at a step, goes on, and must end like the run that did not stop; a run that starts cold with
// the rest of the steps must not. The sources hold fewer rows than the steps take, so that an epoch ends in
// between.
void expect_exact_resume(TrainConfig config, const fs::path& folder, int64_t stop) {
  config.run_folder = (folder / "straight").string();
  Trainer(config, quiet()).run();
  config.run_folder = (folder / "stopped").string();
  ASSERT_EQ(run_until(config, stop, quiet()), SIGTERM);
  EXPECT_EQ(resolve_checkpoint(config.run_folder).filename(), fmt::format("step-{:08}", stop));
  Trainer resumed(config, quiet(true));
  EXPECT_EQ(resumed.state().step, stop);
  resumed.run();
  EXPECT_EQ(checkpoint_hash(folder / "straight"), checkpoint_hash(folder / "stopped"));
  EXPECT_EQ(timeless_metrics(folder / "straight"), timeless_metrics(folder / "stopped"));

  config.run_folder = (folder / "cold").string();
  config.steps -= stop;
  Trainer(config, quiet()).run();
  EXPECT_NE(checkpoint_hash(folder / "straight"), checkpoint_hash(folder / "cold"));
}

TEST(Trainer, ResumesBitForBit) {
  const testing::TemporaryFolder folder;
  expect_exact_resume(testing::tiny_run(folder.path()), folder.path(), 5);
}

TEST(Trainer, ResumesBitForBitWithEveryKindOfState) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.steps = 40;
  config.optimizer.skip_outlier_steps = true;
  config.optimizer.outlier_window = 8;
  config.optimizer.outlier_sigmas = 0.5;  // so that steps are skipped
  config.model.routing.balance.kind = BalanceKind::kBias;
  config.model.routing.selection_noise = 1.0;
  config.model.routing.random_mask_fraction = 0.9;
  config.budget_sampling = BudgetSampling::kSandwich;
  config.data.sequences = SequenceKind::kPacked;
  expect_exact_resume(config, folder.path(), 21);
  EXPECT_GT(read_train_state(resolve_checkpoint(folder / "stopped") / "train_state.json").skipped_steps, 0);
  const TrainingData data(config.data, sha256_of_file(config.data.tokenizer), config.model.vocab_size);
  EXPECT_LT(data.rows_per_epoch()[0], 21 * 4 * 2 / 3) << "an epoch ends before the stop";
}

TEST(Trainer, ResumesBitForBitForVanillaAndDenseModels) {
  for (const Architecture architecture : {Architecture::kVanillaMoe, Architecture::kDense}) {
    const testing::TemporaryFolder folder;
    expect_exact_resume(testing::tiny_run(folder.path(), architecture), folder.path(), 7);
  }
}

TEST(Trainer, LearnsAndReportsEveryBudget) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.steps = 60;
  config.optimizer.learning_rate = 0.02;
  config.validate_every_steps = 20;
  Trainer(config, quiet()).run();
  const std::vector<nlohmann::json> lines = metrics_lines(config.run_folder);
  const auto train_loss = [&](const nlohmann::json& line, const char* budget) {
    return line["loss"][budget].get<double>();
  };
  EXPECT_EQ(lines.front()["step"], 1);
  for (const char* budget : {"1B", "2B", "3B"}) {
    EXPECT_NEAR(train_loss(lines.front(), budget), std::log(260.0), 1.0);
    EXPECT_LT(train_loss(lines[lines.size() - 2], budget), train_loss(lines.front(), budget) - 0.5);
  }
  const nlohmann::json& validation = lines.back();
  EXPECT_EQ(validation["kind"], "validation");
  const nlohmann::json& held = validation["sources"]["held"];
  EXPECT_NEAR(held["bits_per_byte"]["2B"].get<double>(),
              held["loss"]["2B"].get<double>() / std::log(2.0) / 3.0, 1e-9);
  EXPECT_TRUE(validation["nesting"].contains("1B in 2B"));
  EXPECT_GE(validation["router"]["3B"]["load_entropy"].get<double>(), 0.0);
  EXPECT_EQ(lines.front()["tokens"].get<int64_t>(), 64);
  EXPECT_EQ(lines.front()["processed_tokens"].get<int64_t>(), 192);
}

TEST(Trainer, ValidationLossDoesNotDependOnTheMicroBatch) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.validation_rows = 0;
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(config.data.tokenizer);
  Model model(config.model, at::kCPU);
  model.initialize(1);
  const ValidationReport pairs = Validation(config, *tokenizer).run(model);
  config.micro_batch_size = 5;
  const ValidationReport fives = Validation(config, *tokenizer).run(model);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(pairs.sources[0].losses[i], fives.sources[0].losses[i], 1e-6);
  EXPECT_NEAR(pairs.nesting[0], fives.nesting[0], 1e-9);
}

TEST(Trainer, ValidationWithRandomMasksDoesNotDependOnTheMicroBatch) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.validation_rows = 0;
  config.model.routing.mask_source = MaskSource::kRandom;
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(config.data.tokenizer);
  Model model(config.model, at::kCPU);
  model.initialize(1);
  const ValidationReport pairs = Validation(config, *tokenizer).run(model);
  config.micro_batch_size = 5;
  const ValidationReport fives = Validation(config, *tokenizer).run(model);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(pairs.sources[0].losses[i], fives.sources[0].losses[i], 1e-6);
    EXPECT_EQ(pairs.panels[i].load_entropy, fives.panels[i].load_entropy);
  }
  EXPECT_EQ(pairs.nesting[0], 1.0);
}

TEST(Trainer, StopsBeforeTheUpdateAndNamesTheTensorThatIsNotFinite) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  run_until(config, 4, quiet());
  const std::string before = checkpoint_hash(config.run_folder);
  Trainer trainer(config, quiet(true));
  at::Tensor healthy;
  for (const NamedParameter& parameter : trainer.model().parameters()) {
    if (parameter.name == "token_embedding.weight") healthy = parameter.tensor.detach();
    if (parameter.name == "layers.1.routed_experts.up_proj.weight") parameter.tensor.detach().fill_(NAN);
  }
  const at::Tensor copy = healthy.clone();
  try {
    trainer.run();
    FAIL() << "no error";
  } catch (const NumericError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("step 5"), HasSubstr("layers.1.routed_experts.up_proj.weight"),
                                    HasSubstr("checkpoint of step 4 is untouched")));
  }
  EXPECT_TRUE(at::equal(healthy, copy));
  EXPECT_EQ(checkpoint_hash(config.run_folder), before);
}

TEST(Trainer, AnswersBothSignalsAfterTheStep) {
  for (const int number : {SIGTERM, SIGINT}) {
    const testing::TemporaryFolder folder;
    const TrainConfig config = testing::tiny_run(folder.path());
    EXPECT_EQ(run_until(config, 3, quiet(), number), number);
    EXPECT_EQ(resolve_checkpoint(config.run_folder).filename(), "step-00000003");
  }
}

TEST(Trainer, CallsTheEvaluationHookAfterValidation) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  TrainerOptions options = quiet();
  std::vector<int64_t> steps;
  options.evaluation = [&](const Model&, int64_t step) {
    steps.push_back(step);
    return std::map<std::string, double>{{"arc/1B", 0.25}};
  };
  Trainer(config, options).run();
  EXPECT_EQ(steps, (std::vector<int64_t>{5, 10, 12}));
  EXPECT_EQ(metrics_lines(config.run_folder).back()["results"]["arc/1B"], 0.25);
}

TEST(Trainer, EvaluatesAtTheStepsOfTheConfigAndMakesUpForThemAfterAResume) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.evaluation.every_steps = 3;
  std::vector<int64_t> steps;
  TrainerOptions options = quiet();
  options.evaluation = [&](const Model&, int64_t step) {
    steps.push_back(step);
    return std::map<std::string, double>{};
  };
  run_until(config, 6, options);
  EXPECT_EQ(steps, (std::vector<int64_t>{3})) << "the signal came before the evaluation of step 6";
  options.resume = true;
  Trainer(config, options).run();
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 6, 9, 12}));
  steps.clear();
  Trainer(config, options).run();
  EXPECT_TRUE(steps.empty()) << "the last step has been evaluated";
}

// The error that making a trainer throws.
template <class ErrorType>
std::string error_of(const TrainConfig& config, const TrainerOptions& options) {
  try {
    const Trainer trainer(config, options);
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "no error";
}

TEST(RunFolder, WithCheckpointsNeedsTheResumeFlag) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  run_until(config, 2, quiet());
  EXPECT_THAT(error_of<ConfigError>(config, quiet()),
              AllOf(HasSubstr("step-00000002"), HasSubstr("--resume"), HasSubstr("another folder")));
}

TEST(RunFolder, TakesOneJobAtATime) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  const Trainer first(config, quiet());
  EXPECT_THAT(error_of<ConfigError>(config, quiet()), HasSubstr("another job is training in it"));
}

TEST(Resume, ADamagedCheckpointIsNamedAndThePreviousTakenOnlyWhenAsked) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.checkpoint.every_steps = 2;
  run_until(config, 4, quiet());
  const fs::path newest = resolve_checkpoint(config.run_folder);
  fs::resize_file(newest / "optimizer.safetensors", fs::file_size(newest / "optimizer.safetensors") / 2);
  EXPECT_THAT(error_of<CheckpointError>(config, quiet(true)),
              AllOf(HasSubstr("step-00000004"), HasSubstr("optimizer.safetensors"),
                    HasSubstr("--resume-from previous")));
  Trainer trainer(config, quiet(false, "previous"));
  EXPECT_EQ(trainer.state().step, 2);
  EXPECT_TRUE(fs::exists(newest.parent_path() / "superseded-1-step-00000004"))
      << "the damaged one is kept aside";
  trainer.run();
  EXPECT_EQ(trainer.state().step, 12);
}

TEST(Resume, PreviousNeedsTwoCheckpoints) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  run_until(config, 2, quiet());
  EXPECT_THAT(error_of<CheckpointError>(config, quiet(false, "previous")),
              HasSubstr("needs two checkpoints, found 1"));
}

TEST(Resume, IgnoresAFolderThatWasHalfWrittenWhenTheProcessWasKilled) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  run_until(config, 3, quiet());
  const fs::path half = fs::path(config.run_folder) / "checkpoints" / ".step-00000004.tmp-123-0";
  fs::create_directory(half);
  write_file_atomically(half / "model.safetensors", "half");
  const Trainer trainer(config, quiet(true));
  EXPECT_EQ(trainer.state().step, 3);
  EXPECT_FALSE(fs::exists(half)) << "what is left of it is cleared away";
}

TEST(Resume, FromAnotherRunAtItsLastStepLeavesACheckpointInTheNewFolder) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  Trainer(config, quiet()).run();
  const fs::path last = resolve_checkpoint(config.run_folder);
  config.run_folder = (folder / "other").string();
  Trainer(config, quiet(false, last.string())).run();
  const fs::path copy = resolve_checkpoint(config.run_folder);
  EXPECT_EQ(copy.filename(), last.filename());
  EXPECT_EQ(sha256_of_file(copy / "model.safetensors"), sha256_of_file(last / "model.safetensors"));
}

TEST(Resume, RefusesAnotherModelAndNamesTheKeys) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  run_until(config, 2, quiet());
  config.model.expert_dim = 16;
  config.model.budgets[1].experts_per_layer = 4;
  config.optimizer.learning_rate = 1e-4;  // may change
  EXPECT_THAT(error_of<CheckpointError>(config, quiet(true)),
              AllOf(HasSubstr("model.expert_dim: 12 -> 16"),
                    HasSubstr("model.budgets.1.experts_per_layer: 3 -> 4"), Not(HasSubstr("learning_rate"))));
}

TEST(Resume, RefusesOtherData) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  run_until(config, 2, quiet());
  config.data.train[0].weight = 5.0;
  EXPECT_THAT(error_of<CheckpointError>(config, quiet(true)),
              HasSubstr("training data or its order changed"));
}

TEST(Resume, WithoutACheckpointStartsAtTheBeginning) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  Trainer trainer(config, quiet(true));
  EXPECT_EQ(trainer.state().step, 0);
}

TEST(CheckpointWriter, KeepsTheLastAndTheMultiples) {
  const testing::TemporaryFolder folder;
  TrainConfig config = testing::tiny_run(folder.path());
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep_last = 2;
  config.checkpoint.keep_every_steps = 5;
  Trainer(config, quiet()).run();
  std::vector<std::string> names;
  for (const fs::path& path : list_checkpoints(fs::path(config.run_folder) / "checkpoints")) {
    names.push_back(path.filename().string());
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("step-00000005", "step-00000010", "step-00000011", "step-00000012"));
  EXPECT_EQ(read_file(fs::path(config.run_folder) / "checkpoints" / "latest"), "step-00000012\n");
}

TEST(CheckpointWriter, WritesAFolderThatLoadsWithoutTheOptimizer) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  Trainer trainer(config, quiet());
  trainer.run();
  const fs::path checkpoint = resolve_checkpoint(config.run_folder);
  verify_checkpoint(checkpoint);
  EXPECT_EQ(checkpoint_tokenizer(checkpoint).filename(), "tokenizer.json");
  const Model loaded = load_model(config.run_folder, at::kCPU);
  for (size_t i = 0; i < loaded.parameters().size(); ++i) {
    EXPECT_TRUE(at::equal(loaded.parameters()[i].tensor, trainer.model().parameters()[i].tensor.detach()));
  }
  const TrainState state = read_train_state(checkpoint / "train_state.json");
  EXPECT_EQ(state.step, 12);
  EXPECT_EQ(state.position, 48);
  EXPECT_TRUE(state.best_validation_loss.has_value());
}

}  // namespace
}  // namespace smoe
