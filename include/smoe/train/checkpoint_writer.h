// Writes, prunes and reads back the checkpoints of a run. The layout of a checkpoint folder is described in
// smoe/model/checkpoint_reader.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "smoe/model/model.h"
#include "smoe/train/optimizer.h"
#include "smoe/train/train_config.h"
#include "smoe/train/train_state.h"

namespace smoe {

// A small file of a checkpoint: what the run's data needs to be used again.
struct CheckpointFile {
  std::string name;
  std::string content;
};

class CheckpointWriter {
 public:
  // `folder` is the checkpoints folder of the run. Temporary folders left by a killed process are removed.
  // `extra_files` are written into every checkpoint as they are.
  CheckpointWriter(std::filesystem::path folder, const TrainConfig& config, std::filesystem::path tokenizer,
                   std::vector<CheckpointFile> extra_files = {});

  // Writes folder/step-<state.step> so that it is complete or absent, then the pointer `latest`, then removes
  // what the keep rules no longer want. Returns the folder of the new checkpoint.
  std::filesystem::path save(const Model& model, const Optimizer& optimizer, const TrainState& state);

  // Renames checkpoints of `first_step` and later to superseded-<n>-step-<...>: they belong to a part of the
  // run that was given up by resuming from an earlier one.
  void set_aside_from(int64_t first_step);

 private:
  void prune();

  std::filesystem::path folder_;
  const TrainConfig& config_;
  std::filesystem::path tokenizer_;
  std::vector<CheckpointFile> extra_files_;
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

// Loads weights, moments and counters of a verified checkpoint. Throws CheckpointError if the model section
// of `config` (names the keys), the tokenizer or the data fingerprint is another one than the checkpoint's.
// Other keys may differ; each is logged.
TrainState load_checkpoint(const std::filesystem::path& checkpoint, const TrainConfig& config,
                           const DataIdentity& data, Model& model, Optimizer& optimizer);

}  // namespace smoe
