// The reading half of checkpoint_writer.h.
#include <vector>

#include "smoe/core/files.h"
#include "smoe/core/log.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/checkpoint_writer.h"
#include "smoe/train/config_difference.h"
#include "smoe/train/optimizer_state_reader.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

fs::path previous_checkpoint(const fs::path& folder) {
  const std::vector<fs::path> checkpoints = list_checkpoints(folder);
  SMOE_CHECK(
      CheckpointError, checkpoints.size() >= 2,
      "{}: --resume-from previous needs two checkpoints, found {}. Give a folder with --resume-from DIR, or "
      "start again in another run folder.",
      folder.string(), checkpoints.size());
  return checkpoints[checkpoints.size() - 2];
}

void check_identity(const fs::path& checkpoint, const TrainState& state, const DataIdentity& data) {
  SMOE_CHECK(
      CheckpointError, state.tokenizer_hash == data.tokenizer_hash,
      "{}: the run was trained with another tokenizer (SHA-256 {} there, {} now). Put the old tokenizer file "
      "back under data.tokenizer; the checkpoint holds a copy.",
      checkpoint.string(), state.tokenizer_hash, data.tokenizer_hash);
  SMOE_CHECK(
      CheckpointError, state.data_fingerprint == data.fingerprint,
      "{}: the training data or its order changed since this checkpoint (fingerprint {} there, {} now): a "
      "store, a weight, data.sequence_length, data.sequences or data.seed. Restore them, or start a new run "
      "folder.",
      checkpoint.string(), state.data_fingerprint, data.fingerprint);
}

bool is_other_model(const ConfigDifference& change) {
  return change.key.starts_with("model.") || change.key == "dtype";
}

void check_config(const fs::path& checkpoint, const TrainConfig& config) {
  const std::string saved = read_file(checkpoint / "config.yaml");
  std::vector<ConfigDifference> model_changes;
  // Checkpoints of earlier versions lack keys, whose defaults are what those versions did.
  const std::vector<ConfigDifference> changes =
      without_new_defaults(config_differences(saved, dump_config(config)), dump_config(TrainConfig{}));
  for (const ConfigDifference& change : changes) {
    if (is_other_model(change)) {
      model_changes.push_back(change);
    } else {
      spdlog::warn("resume: {} was {} in {} and is now {}", change.key, change.before,
                   checkpoint.filename().string(), change.after);
    }
  }
  SMOE_CHECK(CheckpointError, model_changes.empty(),
             "{}: the model or dtype in the config differs from the checkpoint's:\n{}\nRestore these keys, "
             "or start a new run folder.",
             checkpoint.string(), describe_differences(model_changes));
}

}  // namespace

fs::path choose_checkpoint(const fs::path& folder, const std::string& request) {
  const bool newest = request.empty();
  const fs::path checkpoint = request == "previous" ? previous_checkpoint(folder)
                                                    : resolve_checkpoint(newest ? folder : fs::path(request));
  try {
    verify_checkpoint(checkpoint);
  } catch (const CheckpointError& error) {
    const std::string remedy =
        newest ? "The newest checkpoint cannot be used. To go on from the one before it, pass `--resume-from "
                 "previous`, or name one with `--resume-from DIR`."
               : "Name another checkpoint with `--resume-from DIR`.";
    throw CheckpointError(
        fmt::format("checkpoint {} is damaged: {}\n{}", checkpoint.string(), error.what(), remedy));
  }
  return checkpoint;
}

TrainState check_checkpoint(const fs::path& checkpoint, const TrainConfig& config, const DataIdentity& data) {
  SMOE_CHECK(CheckpointError, fs::is_regular_file(checkpoint / "train_state.json"),
             "{}: train_state.json is missing, so training cannot go on from here; choose a checkpoint that "
             "has it",
             checkpoint.string());
  const TrainState state = read_train_state(checkpoint / "train_state.json");
  check_config(checkpoint, config);
  check_identity(checkpoint, state, data);
  return state;
}

TrainState load_checkpoint(const fs::path& checkpoint, const TrainConfig& config, const DataIdentity& data,
                           Model& model, Optimizer& optimizer) {
  const OptimizerStateReader moments(checkpoint);
  const TrainState state = check_checkpoint(checkpoint, config, data);
  load_model_weights(checkpoint, model);
  moments.restore(optimizer);
  return state;
}

}  // namespace smoe
