// Writes and prunes the checkpoints of a run, and reads them back. The layout of a checkpoint folder is
// described in smoe/model/checkpoint_reader.h, and who writes which of its files in checkpoint_parts.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "smoe/model/model.h"
#include "smoe/train/checkpoint_group.h"
#include "smoe/train/checkpoint_snapshot.h"
#include "smoe/train/optimizer.h"
#include "smoe/train/train_config.h"
#include "smoe/train/train_state.h"

namespace smoe {

class BackgroundTask;

// A small file of a checkpoint: what the run's data needs to be used again.
struct CheckpointFile {
  std::string name;
  std::string content;
};

struct CheckpointWriterOptions {
  std::vector<CheckpointFile> extra_files;  // written into every checkpoint as they are
  std::shared_ptr<CheckpointGroup> group;   // several processes write together; null: one on its own
  // Called by the writing thread before each file with tensors, with its path. For tests, which slow the
  // disk down or throw as a broken one would.
  std::function<void(const std::filesystem::path&)> before_file;
};

class CheckpointWriter {
 public:
  // `folder` is the checkpoints folder of the run. Temporary folders left by a killed process are removed.
  CheckpointWriter(std::filesystem::path folder, const TrainConfig& config, std::filesystem::path tokenizer,
                   CheckpointWriterOptions options = {});
  // Waits for the write in progress.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Writes folder/step-<state.step> so that it is complete or absent, then the pointer `latest`, then removes
  // what the keep rules no longer want. Waits for the write before. With checkpoint.asynchronous it returns
  // when the tensors are copied, and the rest happens on a thread of its own. Returns the seconds that the
  // caller was held up.
  double save(const Model& model, const Optimizer& optimizer, const TrainState& state);

  // Takes note of a write that has ended meanwhile; cheap, meant for every step. If it failed: logs an error,
  // or throws CheckpointError with on_failure: stop.
  void poll();
  // Waits for the write in progress and takes note of it, or of the failure that settle() met before.
  void wait();
  // The same without throwing: false if the write failed, which is logged.
  bool settle();
  // The save at the end of a run: nothing changes the tensors any more, so they are written without a copy,
  // unless the state is on disk already. Throws CheckpointError if it is not afterwards, whatever on_failure
  // says. After `limit_s` seconds (none: never) it logs that the deadline is missed, and waits on.
  void save_last(const Model& model, const Optimizer& optimizer, const TrainState& state,
                 std::optional<double> limit_s = std::nullopt);

  // Step of the newest checkpoint that this object knows to be complete; 0 if there is none.
  int64_t saved_step() const { return saved_step_; }

  // Renames checkpoints of `first_step` and later to superseded-<n>-step-<...>: they belong to a part of the
  // run that was given up by going on from an earlier one. `first_step` - 1 becomes the newest one, unless
  // the run went on from a checkpoint of another folder. Called by all processes together.
  void set_aside_from(int64_t first_step);

 private:
  struct Job;

  Job make_job(const Model& model, const Optimizer& optimizer, const TrainState& state);
  void start_writing(Job job);
  void write(const Job& job) const;
  int64_t lead(const Job& job) const;
  void follow(const Job& job) const;
  int64_t collect_parts(const Job& job, const std::filesystem::path& folder) const;
  void finish_save(const std::filesystem::path& checkpoint) const;
  void rename_superseded(int64_t first_step) const;
  bool holds(int64_t step);
  void prune() const;
  std::string describe_saved() const;
  void publish(const Job& job, const std::string& key, const std::string& value) const;
  int64_t rank() const;
  int64_t world_size() const;

  std::filesystem::path folder_;
  const TrainConfig& config_;
  std::filesystem::path tokenizer_;
  std::string tokenizer_text_;  // read at the start: the original may be gone when a save needs it
  CheckpointWriterOptions options_;
  int64_t num_saves_ = 0;
  int64_t num_looks_ = 0;  // of rank 0 for a checkpoint that the others ask about
  int64_t saved_step_ = 0;
  int64_t pending_step_ = 0;  // of the write in progress
  std::string last_error_;    // of the newest write, if it failed
  CheckpointSnapshot snapshot_;
  std::unique_ptr<BackgroundTask> task_;  // last: its thread uses the members above
};

// The checkpoint to go on from. `request` empty: the newest one in `folder`; "previous": the one before it;
// else a path. Throws CheckpointError: nothing there; damaged (names checkpoint and file, and says how to
// take the previous one, which is never taken silently).
std::filesystem::path choose_checkpoint(const std::filesystem::path& folder, const std::string& request);

// What identifies the data of the present run.
struct DataIdentity {
  std::string fingerprint;
  std::string tokenizer_hash;
};

// The counters of a verified checkpoint, if a run of `config` may go on from it. Throws CheckpointError if
// the model section or dtype of `config` (names the keys), the tokenizer or the data fingerprint is another
// than the checkpoint's. Other keys may differ; each is logged.
TrainState check_checkpoint(const std::filesystem::path& checkpoint, const TrainConfig& config,
                            const DataIdentity& data);

// The same, and loads weights and moments.
TrainState load_checkpoint(const std::filesystem::path& checkpoint, const TrainConfig& config,
                           const DataIdentity& data, Model& model, Optimizer& optimizer);

}  // namespace smoe
