#include "smoe/sweep/run_state.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/core/progress.h"
#include "smoe/core/table.h"
#include "smoe/train/metrics_file.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

// Whether a job holds the lock that smoe-train takes on its run folder.
bool is_locked(const fs::path& run_folder) {
  const int descriptor = ::open((run_folder / "lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool locked = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0;
  ::close(descriptor);
  return locked;
}

// What changes speed, memory, files and messages of a run, and its numbers by rounding at most.
bool changes_no_result(const std::string& key) {
  constexpr std::string_view kKeys[] = {"run_folder",    "num_threads",     "micro_batch_size",
                                        "deterministic", "log_every_steps", "loss.head_chunk_tokens"};
  constexpr std::string_view kSections[] = {"activation_checkpointing.", "checkpoint.", "distributed.",
                                            "evaluation."};
  return std::ranges::find(kKeys, key) != std::end(kKeys) ||
         std::ranges::any_of(kSections,
                             [&key](std::string_view section) { return key.starts_with(section); });
}

RunStage stage_of(const SweepPlan& plan, const PlannedRun& run) {
  if (is_locked(run.config.run_folder)) return RunStage::kTraining;
  const std::optional<RunState> state = read_run_state(plan.state_file(run));
  if (!state) return RunStage::kWaiting;
  if (!training_differences(plan, run, *state).empty()) return RunStage::kOtherConfig;
  if (state->failures > 0) return RunStage::kFailed;
  if (!state->trained) return RunStage::kInterrupted;
  for (const SweepEvaluation& evaluation : plan.config.evaluations) {
    const auto found = state->evaluations.find(evaluation.name);
    if (found == state->evaluations.end() || found->second != evaluation_hash(evaluation)) {
      return RunStage::kTrained;
    }
  }
  return RunStage::kFinished;
}

}  // namespace

const char* to_string(RunStage stage) {
  switch (stage) {
    case RunStage::kWaiting:
      return "waiting";
    case RunStage::kInterrupted:
      return "interrupted";
    case RunStage::kTraining:
      return "training";
    case RunStage::kFailed:
      return "failed";
    case RunStage::kTrained:
      return "to evaluate";
    case RunStage::kFinished:
      return "finished";
    case RunStage::kOtherConfig:
      return "other config";
  }
  return "";
}

std::optional<RunState> read_run_state(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  const nlohmann::json json = read_json_file(path);
  RunState state;
  try {
    state.config_hash = json.at("config_hash").get<std::string>();
    state.trained = json.at("trained").get<bool>();
    state.evaluations = json.at("evaluations").get<std::map<std::string, std::string>>();
    state.core_seconds = json.at("core_seconds").get<double>();
    state.wall_seconds = json.at("wall_seconds").get<double>();
    state.failures = json.at("failures").get<int64_t>();
  } catch (const nlohmann::json::exception& error) {
    throw DataError(
        fmt::format("{}: not the state of a run of a sweep: {}. Remove the file; the run itself "
                    "is kept and continues from its newest checkpoint.",
                    path.string(), error.what()));
  }
  return state;
}

void write_run_state(const fs::path& path, const RunState& state) {
  write_json_atomically(path, {{"config_hash", state.config_hash},
                               {"trained", state.trained},
                               {"evaluations", state.evaluations},
                               {"core_seconds", state.core_seconds},
                               {"wall_seconds", state.wall_seconds},
                               {"failures", state.failures}});
}

std::vector<ConfigDifference> training_differences(const SweepPlan& plan, const PlannedRun& run,
                                                   const RunState& state) {
  const std::string now = config_hash(run.config);
  if (state.config_hash == now) return {};
  const fs::path trained = plan.config_file(run);
  if (!fs::exists(trained)) return {{"hash of the config, whose file is gone", state.config_hash, now}};
  std::vector<ConfigDifference> differences = without_new_defaults(
      config_differences(read_file(trained), dump_config(run.config)), dump_config(TrainConfig{}));
  std::erase_if(differences, [](const auto& difference) { return changes_no_result(difference.key); });
  return differences;
}

std::string evaluation_hash(const SweepEvaluation& evaluation) { return config_hash(evaluation); }

RunProgress run_progress(const SweepPlan& plan, const PlannedRun& run) {
  RunProgress progress;
  progress.stage = stage_of(plan, run);
  progress.total_steps = run.config.steps;
  for (const auto& line : read_metrics(fs::path(run.config.run_folder) / "metrics.jsonl")) {
    if (line["kind"] == "train") {
      progress.step = line.at("step").get<int64_t>();
      progress.seconds = line.at("seconds").get<double>();
    } else if (line["kind"] == "validation") {
      progress.validation_loss = line.at("mean_loss").get<double>();
    }
  }
  if (progress.step > 0) {
    progress.remaining_s = progress.seconds / static_cast<double>(progress.step) *
                           static_cast<double>(progress.total_steps - progress.step);
  }
  return progress;
}

std::string describe_progress(const SweepPlan& plan, int64_t jobs) {
  Table table({"run", "stage", "step", "validation loss", "trained for", "left"});
  std::vector<RunProgress> all;
  double known_total = 0.0;
  double known = 0.0;
  for (const PlannedRun& run : plan.runs) {
    all.push_back(run_progress(plan, run));
    if (!all.back().remaining_s) continue;
    known_total += all.back().seconds + *all.back().remaining_s;
    known += 1.0;
  }
  double left = 0.0;
  bool is_known = true;
  int64_t finished = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const RunProgress& progress = all[i];
    std::optional<double> remaining = progress.remaining_s;
    if (!remaining && known > 0.0) remaining = known_total / known;
    if (remaining) {
      left += *remaining;
    } else {
      is_known = false;
    }
    finished += progress.stage == RunStage::kFinished ? 1 : 0;
    table.add_row({plan.runs[i].name, to_string(progress.stage),
                   fmt::format("{}/{}", progress.step, progress.total_steps),
                   progress.validation_loss ? fmt::format("{:.4f}", *progress.validation_loss) : "",
                   progress.step > 0 ? format_duration(progress.seconds) : "",
                   remaining ? format_duration(*remaining) : "?"});
  }
  return table.to_terminal() +
         fmt::format("{} of {} runs are finished; about {} of training are left with {} at a time\n",
                     finished, all.size(),
                     is_known ? format_duration(left / static_cast<double>(jobs)) : "an unknown time", jobs);
}

}  // namespace smoe
