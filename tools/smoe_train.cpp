// smoe-train: pre-trains or fine-tunes a model from a YAML config.
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/core/log.h"
#include "smoe/core/tool.h"
#include "smoe/train/dry_run.h"
#include "smoe/train/join_job.h"
#include "smoe/train/trainer.h"
#include "smoe_train_evaluation.h"

namespace {

int train(const smoe::TrainConfig& config, const smoe::TrainerOptions& options) {
  smoe::Trainer trainer(config, options);
  const smoe::TrainOutcome outcome = trainer.run();
  if (outcome.signal != 0) {
    if (options.communicator->is_main()) {
      fmt::print("stopped by signal {} after step {}, which is saved; go on with --resume\n", outcome.signal,
                 trainer.state().step);
    }
    return 128 + outcome.signal;
  }
  if (options.communicator->is_main()) {
    fmt::print("finished step {}; checkpoints are in {}\n", trainer.state().step,
               (trainer.run_folder() / "checkpoints").string());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a dense, Stepped MoE or vanilla MoE language model.");
  smoe::ConfigSource source;
  smoe::TrainerOptions options;
  bool print_config = false;
  bool dry_run = false;
  smoe::DryRunOptions dry_options;
  std::string log_level = "auto";
  app.add_option("config", source.file, "YAML of the run (see --print-config for every key)");
  app.add_option("--set", source.overrides,
                 "override, spelled as in the file: --set optimizer.learning_rate=1e-3")
      ->take_all()
      ->expected(1);
  app.add_flag("--resume", options.resume,
               "go on from the newest checkpoint of the run folder, if there is one");
  app.add_option("--resume-from", options.resume_from,
                 "go on from this checkpoint folder, or `previous`: the last but one");
  app.add_flag(
      "--print-config", print_config,
      "print the resolved config, or, without a config file, every key with type, default and meaning");
  app.add_flag(
      "--dry-run", dry_run,
      "do all that comes before the first step, report memory, FLOPs, time and disk space, and train "
      "nothing");
  app.add_option("--tokens-per-second", dry_options.tokens_per_s,
                 "for --dry-run: speed that the expected time is computed with, as training lines print it")
      ->check(CLI::PositiveNumber);
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error or auto")->capture_default_str();
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;

  return smoe::run_tool([&] {
    smoe::initialize_logging(log_level);
    if (print_config && source.file.empty()) {
      fmt::print("{}", smoe::describe_config<smoe::TrainConfig>());
      return 0;
    }
    SMOE_CHECK(ConfigError, !source.file.empty(), "no config file is given; see smoe-train --help");
    const auto config = smoe::read_config<smoe::TrainConfig>(source);
    if (print_config) {
      fmt::print("{}", smoe::dump_config(config));
      return 0;
    }
    const auto evaluation = smoe::make_training_evaluation(config);
    if (dry_run) {
      // One report is enough for a job, but every process may find that it does not fit its node.
      if (const smoe::LaunchInfo launch = smoe::read_launch_info(); launch.rank != 0) {
        smoe::check_job(config, launch);
        return 0;
      }
      dry_options.resume = options.resume;
      dry_options.resume_from = options.resume_from;
      fmt::print("{}{}", smoe::describe_run(config, dry_options), evaluation ? evaluation->describe() : "");
      return 0;
    }
    if (evaluation) {
      options.evaluation = [&](const smoe::Model& model, int64_t step) {
        return evaluation->run(model, step);
      };
    }
    options.communicator = smoe::join_job(config);
    return smoe::run_as_member(*options.communicator, [&] { return train(config, options); });
  });
}
