#include "smoe/train/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "background_task.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/core/log.h"
#include "smoe/core/progress.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/safetensors.h"
#include "smoe/model/weight_files.h"
#include "smoe/train/checkpoint_parts.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string step_name(int64_t step) { return fmt::format("step-{:08}", step); }

int64_t step_of(const fs::path& checkpoint) { return checkpoint_step(checkpoint).value_or(0); }

// A folder of a process that was killed while it wrote a checkpoint, or of a save whose disk became read-only
// and that could not take it away. The run's lock is held and saves follow each other, so nobody writes in
// it.
bool is_abandoned(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(".step-") && name.find(".tmp-") != std::string::npos;
}

void remove_abandoned(const fs::path& folder) {
  std::vector<fs::path> abandoned;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_abandoned(entry.path())) abandoned.push_back(entry.path());
  }
  for (const fs::path& path : abandoned) {
    spdlog::warn("{}: removed: what is left of a checkpoint whose writing was cut short", path.string());
    fs::remove_all(path);
  }
}

// Messages between the processes: the temporary folder, or nothing if there is none; a process's report; the
// error that the save ended with, or nothing.
constexpr const char* kFolderKey = "folder";
const std::string kPartKey = "part/";
constexpr const char* kResultKey = "result";

// Names are kept as tokenizer.model or tokenizer.json, whatever the original file is called.
std::string tokenizer_name(const fs::path& tokenizer) {
  return tokenizer.extension() == ".json" ? "tokenizer.json" : "tokenizer.model";
}

// What a process reports of its files: their checksums, or what went wrong.
struct PartReport {
  std::string error;
  int64_t num_bytes = 0;
  nlohmann::json checksums = nlohmann::json::object();
};

// The tensor files of one process. Errors go into the report: the others must hear of them.
PartReport write_part(const std::vector<TensorFile>& files, const fs::path& folder,
                      const std::function<void(const fs::path&)>& before_file) {
  PartReport report;
  try {
    for (const TensorFile& file : files) {
      const fs::path path = folder / file.name;
      if (before_file) before_file(path);
      write_safetensors(path, file.tensors, file.metadata);
      report.checksums[file.name] = sha256_of_file(path);
      report.num_bytes += static_cast<int64_t>(fs::file_size(path));
    }
  } catch (const std::exception& error) {
    report.error = error.what();
  }
  return report;
}

// The error may name a path that is no UTF-8; the others must hear of it all the same.
std::string to_text(const PartReport& report) {
  return nlohmann::json(
             {{"error", report.error}, {"bytes", report.num_bytes}, {"checksums", report.checksums}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

PartReport part_report_from_text(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {json.at("error").get<std::string>(), json.at("bytes").get<int64_t>(), json.at("checksums")};
}

}  // namespace

// All that a write needs, so that it depends on nothing that training changes.
struct CheckpointWriter::Job {
  int64_t step = 0;
  int64_t number = 0;             // of the save, which tells the messages of two saves of one step apart
  std::vector<TensorFile> files;  // of this process
  std::vector<CheckpointFile> small_files;  // the main process only

  std::string key(const std::string& name) const { return fmt::format("checkpoint/{}/{}", number, name); }
};

CheckpointWriter::CheckpointWriter(fs::path folder, const TrainConfig& config, fs::path tokenizer,
                                   CheckpointWriterOptions options)
    : folder_(std::move(folder)),
      config_(config),
      tokenizer_(std::move(tokenizer)),
      tokenizer_text_(read_file(tokenizer_)),
      options_(std::move(options)),
      task_(std::make_unique<BackgroundTask>()) {
  if (rank() != 0) return;
  fs::create_directories(folder_);
  remove_abandoned(folder_);
}

CheckpointWriter::~CheckpointWriter() { settle(); }

int64_t CheckpointWriter::rank() const { return options_.group ? options_.group->rank() : 0; }
int64_t CheckpointWriter::world_size() const { return options_.group ? options_.group->world_size() : 1; }

double CheckpointWriter::save(const Model& model, const Optimizer& optimizer, const TrainState& state) {
  const Clock::time_point start = Clock::now();
  wait();
  Job job = make_job(model, optimizer, state);
  if (config_.checkpoint.asynchronous) job.files = snapshot_.copy(job.files);
  start_writing(std::move(job));
  if (!config_.checkpoint.asynchronous) wait();
  return seconds_since(start);
}

void CheckpointWriter::save_last(const Model& model, const Optimizer& optimizer, const TrainState& state,
                                 std::optional<double> limit_s) {
  const Clock::time_point start = Clock::now();
  // Says so at once: the process may be killed while it waits on.
  const auto watch_deadline = [&] {
    if (!limit_s || task_->wait_for(std::chrono::duration<double>(*limit_s - seconds_since(start)))) return;
    spdlog::error(
        "checkpoint.stop_deadline_seconds: {} s after the signal, the checkpoint of step {} is still being "
        "written. {} The write goes on for as long as the process is left alive.",
        config_.checkpoint.stop_deadline_seconds, pending_step_, describe_saved());
  };
  watch_deadline();
  settle();
  if (saved_step_ != state.step) {
    start_writing(make_job(model, optimizer, state));
    watch_deadline();
  }
  if (task_->active()) {  // not settle(): there is no next save to promise, and the error below says it all
    last_error_ = task_->wait();
    if (last_error_.empty()) saved_step_ = pending_step_;
  }
  SMOE_CHECK(CheckpointError, saved_step_ == state.step,
             "the run ends without the checkpoint of its last step {}: {}. {} Free space or restore the "
             "rights, then go on with --resume.",
             state.step, last_error_, describe_saved());
}

CheckpointWriter::Job CheckpointWriter::make_job(const Model& model, const Optimizer& optimizer,
                                                 const TrainState& state) {
  Job job;
  job.step = state.step;
  job.number = num_saves_++;
  job.files = checkpoint_part(model, optimizer, rank(), world_size());
  if (rank() != 0) return job;
  job.small_files = options_.extra_files;
  job.small_files.push_back({tokenizer_name(tokenizer_), tokenizer_text_});
  job.small_files.push_back({"config.yaml", dump_config(config_)});
  job.small_files.push_back({"train_state.json", train_state_to_json(state)});
  if (world_size() > 1)
    job.small_files.push_back({kWeightsIndexFile, model_index(model_tensors(model), world_size())});
  return job;
}

void CheckpointWriter::start_writing(Job job) {
  pending_step_ = job.step;
  task_->start([this, job = std::move(job)] { write(job); });
}

void CheckpointWriter::poll() {
  if (task_->active() && task_->ended()) wait();
}

// Also a failure that settle() has taken note of before ends the run here.
void CheckpointWriter::wait() {
  settle();
  SMOE_CHECK(CheckpointError, last_error_.empty() || config_.checkpoint.on_failure == SaveFailure::kWarn,
             "the checkpoint of step {} could not be written: {}. {} The run ends because of "
             "checkpoint.on_failure: stop; go on with --resume when the cause is removed.",
             pending_step_, last_error_, describe_saved());
}

bool CheckpointWriter::settle() {
  if (!task_->active()) return true;
  last_error_ = task_->wait();
  if (last_error_.empty()) {
    saved_step_ = pending_step_;
    return true;
  }
  spdlog::error("the checkpoint of step {} could not be written: {}. {}{}", pending_step_, last_error_,
                describe_saved(),
                config_.checkpoint.on_failure == SaveFailure::kWarn
                    ? " The run goes on and tries again at the next save."
                    : "");
  return false;
}

std::string CheckpointWriter::describe_saved() const {
  return saved_step_ == 0 ? "There is no other checkpoint of this run."
                          : fmt::format("The newest complete checkpoint is that of step {}.", saved_step_);
}

void CheckpointWriter::write(const Job& job) const {
  const Clock::time_point start = Clock::now();
  if (rank() == 0) {
    const int64_t num_bytes = lead(job);
    spdlog::info("saved {} ({} in {:.2f} s)", (folder_ / step_name(job.step)).string(),
                 format_bytes(static_cast<double>(num_bytes)), seconds_since(start));
  } else {
    follow(job);
  }
}

void CheckpointWriter::publish(const Job& job, const std::string& key, const std::string& value) const {
  if (options_.group) options_.group->publish(job.key(key), value);
}

// The main process makes the folder, and gives it its name when all have reported that their files are there.
// Returns the bytes of all.
int64_t CheckpointWriter::lead(const Job& job) const {
  bool folder_is_known = false;
  int64_t num_bytes = 0;
  try {
    remove_abandoned(folder_);
    rename_superseded(job.step);
    const fs::path final_path = folder_ / step_name(job.step);
    AtomicFolder folder(final_path);
    publish(job, kFolderKey, folder.temporary_path().string());
    folder_is_known = true;
    num_bytes = collect_parts(job, folder.temporary_path());
    folder.commit();
    finish_save(final_path);
  } catch (const std::exception& error) {
    if (!folder_is_known) publish(job, kFolderKey, "");
    publish(job, kResultKey, error.what());
    throw;
  }
  publish(job, kResultKey, "");
  return num_bytes;
}

// Every process is heard before the first error is thrown: the folder must not vanish under those who write.
int64_t CheckpointWriter::collect_parts(const Job& job, const fs::path& folder) const {
  PartReport whole = write_part(job.files, folder, options_.before_file);
  for (int64_t other = 1; other < world_size(); ++other) {
    const PartReport part =
        part_report_from_text(options_.group->await(job.key(kPartKey + std::to_string(other)), other));
    whole.checksums.update(part.checksums);
    whole.num_bytes += part.num_bytes;
    if (whole.error.empty() && !part.error.empty())
      whole.error = fmt::format("rank {}: {}", other, part.error);
  }
  SMOE_CHECK(Error, whole.error.empty(), "{}", whole.error);
  for (const CheckpointFile& file : job.small_files) {
    write_file_atomically(folder / file.name, file.content);
    whole.checksums[file.name] = sha256_of_file(folder / file.name);
  }
  write_json_atomically(folder / "checksums.json", whole.checksums);
  return whole.num_bytes;
}

void CheckpointWriter::follow(const Job& job) const {
  const std::string folder = options_.group->await(job.key(kFolderKey), 0);
  if (!folder.empty()) {
    const PartReport part = write_part(job.files, folder, options_.before_file);
    publish(job, kPartKey + std::to_string(rank()), to_text(part));
  }
  const std::string error = options_.group->await(job.key(kResultKey), 0);
  SMOE_CHECK(Error, error.empty(), "{}", error);
}

// The checkpoint is complete: what fails from here on is no loss of it.
void CheckpointWriter::finish_save(const fs::path& checkpoint) const {
  try {
    write_file_atomically(folder_ / "latest", checkpoint.filename().string() + "\n");
    prune();
  } catch (const std::exception& error) {
    spdlog::warn(
        "{} is complete, but the file `latest` or older checkpoints could not be brought up to date: {}",
        checkpoint.string(), error.what());
  }
}

void CheckpointWriter::set_aside_from(int64_t first_step) {
  wait();
  saved_step_ = holds(first_step - 1) ? first_step - 1 : 0;
  if (rank() == 0) rename_superseded(first_step);
}

// Rank 0 looks, and the others take its word: all must agree on whether the last step is yet to be saved.
bool CheckpointWriter::holds(int64_t step) {
  const std::string key = fmt::format("held/{}", num_looks_++);
  if (rank() != 0) return options_.group->await(key, 0) == "yes";
  const bool is_held = fs::exists(folder_ / step_name(step));
  if (options_.group) options_.group->publish(key, is_held ? "yes" : "no");
  return is_held;
}

// They may be the user's only copy of something, so they are renamed, not removed.
void CheckpointWriter::rename_superseded(int64_t first_step) const {
  for (const fs::path& checkpoint : list_checkpoints(folder_)) {
    if (step_of(checkpoint) < first_step) continue;
    fs::path aside;
    for (int number = 1; aside.empty() || fs::exists(aside); ++number) {
      aside = folder_ / fmt::format("superseded-{}-{}", number, checkpoint.filename().string());
    }
    fs::rename(checkpoint, aside);
    spdlog::warn("{}: set aside as {}: the run went on from an earlier step", checkpoint.string(),
                 aside.filename().string());
  }
}

void CheckpointWriter::prune() const {
  const CheckpointConfig& keep = config_.checkpoint;
  if (keep.keep_last == 0) return;
  std::vector<fs::path> checkpoints = list_checkpoints(folder_);
  const int64_t surplus = static_cast<int64_t>(checkpoints.size()) - keep.keep_last;
  for (int64_t i = 0; i < surplus; ++i) {
    const fs::path& checkpoint = checkpoints[static_cast<size_t>(i)];
    if (keep.keep_every_steps > 0 && step_of(checkpoint) % keep.keep_every_steps == 0) continue;
    // Renamed first: a removal that is cut short must not leave half a folder under a checkpoint's name.
    const fs::path doomed = folder_ / fmt::format(".{}.tmp-removed", checkpoint.filename().string());
    fs::rename(checkpoint, doomed);
    fs::remove_all(doomed);
  }
}

}  // namespace smoe
