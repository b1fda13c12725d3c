#include "smoe/sweep/sweep_runner.h"

#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>

#include "smoe/core/available_cores.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/core/log.h"
#include "smoe/core/progress.h"
#include "smoe/sweep/child_programs.h"
#include "smoe/sweep/run_state.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

std::vector<const PlannedRun*> chosen_runs(const SweepPlan& plan, const std::vector<std::string>& only) {
  std::vector<const PlannedRun*> chosen;
  const auto add = [&chosen](const PlannedRun& run) {
    if (std::ranges::find(chosen, &run) == chosen.end()) chosen.push_back(&run);
  };
  for (const std::string& word : only) {
    size_t index = plan.runs.size();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), index);
    const bool is_number = error == std::errc() && end == word.data() + word.size();
    bool found = false;
    for (size_t i = 0; i < plan.runs.size(); ++i) {
      const PlannedRun& run = plan.runs[i];
      if (is_number ? i != index : run.name != word && run.row_name != word) continue;
      add(run);
      found = true;
    }
    SMOE_CHECK(
        ConfigError, found,
        "--only {}: no such run; give a name, a row's name, or a number from 0 to {} (smoe-sweep status "
        "lists the names)",
        word, plan.runs.size() - 1);
  }
  if (only.empty()) {
    for (const PlannedRun& run : plan.runs) add(run);
  }
  return chosen;
}

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Results of another config under the same name would be mixed with those of this sweep.
void check_same_configs(const SweepPlan& plan, const std::vector<const PlannedRun*>& runs) {
  for (const PlannedRun* run : runs) {
    const std::optional<RunState> state = read_run_state(plan.state_file(*run));
    if (!state) continue;
    const std::vector<ConfigDifference> differences = training_differences(plan, *run, *state);
    if (differences.empty()) continue;
    throw ConfigError(fmt::format(
        "{}: was trained with another config:\n{}\nGive the row another name, choose another `folder`, or "
        "remove {} and {}.",
        run->name, describe_differences(differences), plan.state_file(*run).string(),
        run->config.run_folder));
  }
}

// One run on its way through training and evaluations.
class RunJob {
 public:
  RunJob(const SweepPlan& plan, const PlannedRun& run, const fs::path& tools)
      : plan_(plan), run_(run), tools_(tools) {
    state_ = read_run_state(plan.state_file(run)).value_or(RunState{});
    state_.config_hash = config_hash(run.config);
  }

  const PlannedRun& run() const { return run_; }

  // The command of the next part that is not done, or an empty one.
  std::vector<std::string> next_command() {
    if (!state_.trained) {
      write_file_atomically(plan_.config_file(run_), dump_config(run_.config));
      return {(tools_ / "smoe-train").string(), plan_.config_file(run_).string(), "--resume"};
    }
    evaluation_ = nullptr;
    for (const SweepEvaluation& evaluation : plan_.config.evaluations) {
      const auto found = state_.evaluations.find(evaluation.name);
      if (found != state_.evaluations.end() && found->second == evaluation_hash(evaluation)) continue;
      evaluation_ = &evaluation;
      const fs::path results = plan_.results_file(run_, evaluation);
      fs::create_directories(results.parent_path());
      std::vector<std::string> command = {(tools_ / "smoe-eval").string(),
                                          "--checkpoint",
                                          run_.config.run_folder,
                                          "--tasks",
                                          fmt::format("{}", fmt::join(evaluation.tasks, ",")),
                                          "--data",
                                          evaluation.data,
                                          "--out",
                                          results.string(),
                                          "--samples",
                                          (results.parent_path() / evaluation.name).string()};
      command.insert(command.end(), evaluation.options.begin(), evaluation.options.end());
      return command;
    }
    return {};
  }

  std::string part() const { return evaluation_ == nullptr ? "train" : "evaluate " + evaluation_->name; }

  void part_ended(const ProgramEnd& end) {
    if (evaluation_ == nullptr) {
      state_.core_seconds += end.core_seconds;
      state_.wall_seconds += end.wall_seconds;
      state_.trained = end.exit_code == 0;
    } else if (end.exit_code == 0) {
      state_.evaluations[evaluation_->name] = evaluation_hash(*evaluation_);
    }
    // A run that was told to stop has not failed.
    state_.failures = end.exit_code == 0 || end.was_stopped ? 0 : state_.failures + 1;
    save();
  }

  void save() const { write_run_state(plan_.state_file(run_), state_); }

 private:
  const SweepPlan& plan_;
  const PlannedRun& run_;
  const fs::path& tools_;
  RunState state_;
  const SweepEvaluation* evaluation_ = nullptr;
};

class SweepRunner {
 public:
  SweepRunner(const SweepPlan& plan, const SweepRunOptions& options) : plan_(plan), options_(options) {}

  SweepOutcome run(const std::vector<const PlannedRun*>& runs) {
    waiting_.assign(runs.begin(), runs.end());
    total_ = waiting_.size();
    while (true) {
      while (programs_.signal() == 0 && static_cast<int64_t>(programs_.size()) < options_.jobs &&
             !waiting_.empty()) {
        // Its state is read only now: another machine may have worked on the run in the meantime.
        start_next_part(RunJob(plan_, *waiting_.front(), options_.tools));
        waiting_.pop_front();
      }
      if (programs_.size() == 0) break;
      for (const ProgramEnd& end : programs_.wait()) part_ended(end);
    }
    outcome_.signal = programs_.signal();
    return outcome_;
  }

 private:
  void start_next_part(RunJob job) {
    const std::vector<std::string> command = job.next_command();
    if (command.empty()) {
      ++outcome_.finished;
      fmt::print("[{}/{}] {}: finished\n", outcome_.finished, total_, job.run().name);
      return;
    }
    job.save();
    const int64_t id = programs_.start(command, plan_.log_file(job.run()));
    fmt::print("{}: {} ({})\n", job.run().name, job.part(), plan_.log_file(job.run()).string());
    std::fflush(stdout);
    running_.emplace(id, std::move(job));
  }

  void part_ended(const ProgramEnd& end) {
    auto node = running_.extract(end.id);
    RunJob job = std::move(node.mapped());
    job.part_ended(end);
    if (end.exit_code == 0 && programs_.signal() == 0) {
      start_next_part(std::move(job));
    } else if (end.exit_code != 0 && !end.was_stopped) {
      ++outcome_.failed;
      spdlog::error("{}: {} failed with exit code {} after {}; the end of {}:\n{}", job.run().name,
                    job.part(), end.exit_code, format_duration(end.wall_seconds),
                    plan_.log_file(job.run()).string(), last_lines(plan_.log_file(job.run()), 5));
    }
  }

  static std::string last_lines(const fs::path& path, int count) {
    const std::string text = read_file(path);
    size_t begin = text.size();
    for (int i = 0; i <= count && begin != std::string::npos && begin > 0; ++i)
      begin = text.rfind('\n', begin - 1);
    return begin == std::string::npos ? text : text.substr(std::min(begin + 1, text.size()));
  }

  const SweepPlan& plan_;
  const SweepRunOptions& options_;
  ChildPrograms programs_;
  std::deque<const PlannedRun*> waiting_;
  std::map<int64_t, RunJob> running_;
  size_t total_ = 0;
  SweepOutcome outcome_;
};

}  // namespace

SweepOutcome run_sweep(const SweepPlan& plan, const SweepRunOptions& options) {
  const std::vector<const PlannedRun*> runs = chosen_runs(plan, options.only);
  for (const char* program : {"smoe-train", "smoe-eval"}) {
    SMOE_CHECK(ConfigError, ::access((options.tools / program).c_str(), X_OK) == 0,
               "{} is no program; smoe-sweep starts the programs that lie beside it, so build all tools "
               "(target smoe-tools)",
               (options.tools / program).string());
  }
  check_same_configs(plan, runs);
  for (const char* name : {"configs", "logs", "states", "runs"}) fs::create_directories(plan.folder() / name);
  const int64_t cores = available_cores();
  for (const PlannedRun* run : runs) {
    const int64_t threads = run->config.num_threads == 0 ? cores : run->config.num_threads;
    if (options.jobs == 1 || options.jobs * threads <= cores) continue;
    spdlog::warn(
        "{} runs at a time with {} threads each share {} cores; add num_threads={} to `set` in the file of "
        "the sweep",
        options.jobs, threads, cores, std::max<int64_t>(1, cores / options.jobs));
    break;
  }
  return SweepRunner(plan, options).run(runs);
}

std::string slurm_script(const SweepPlan& plan, const fs::path& sweep_file,
                         const std::vector<std::string>& overrides, const fs::path& sweep_tool) {
  fs::create_directories(plan.folder() / "logs");
  std::string settings;
  for (const std::string& override : overrides) settings += fmt::format(" --set {}", shell_quoted(override));
  // srun makes the program a job step: such steps receive the signal directly, and once.
  return fmt::format(
      "#!/bin/bash\n"
      "# One array task a run. A task that is cut by its time limit saves on SIGTERM; submit the script "
      "again\n"
      "# and it goes on.\n"
      "#SBATCH --job-name={0}\n"
      "#SBATCH --array=0-{1}\n"
      "#SBATCH --output={2}/logs/slurm-%A-%a.log\n"
      "#SBATCH --signal=TERM@120\n"
      "set -euo pipefail\n"
      "cd {3}\n"
      "exec srun --ntasks=1 {4} run {5}{6} --only \"$SLURM_ARRAY_TASK_ID\"\n",
      sweep_file.stem().string(), plan.runs.size() - 1, fs::absolute(plan.folder()).string(),
      shell_quoted(fs::current_path()), shell_quoted(fs::absolute(sweep_tool)),
      shell_quoted(fs::absolute(sweep_file)), settings);
}

}  // namespace smoe
