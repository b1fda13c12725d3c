#include "smoe/train/checkpoint_writer.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

#include "smoe/core/files.h"
#include "smoe/core/log.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/safetensors.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

std::string step_name(int64_t step) { return fmt::format("step-{:08}", step); }

int64_t step_of(const fs::path& checkpoint) {
  const std::string digits = checkpoint.filename().string().substr(std::string("step-").size());
  int64_t step = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return step;
}

// A folder of a process that was killed while it wrote a checkpoint. The run's lock is held, so no living
// process owns it.
bool is_abandoned(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(".step-") && name.find(".tmp-") != std::string::npos;
}

TensorList model_tensors(const Model& model) {
  TensorList tensors;
  for (const NamedParameter& parameter : model.parameters()) {
    tensors.emplace_back(parameter.name, parameter.tensor.detach());
  }
  return tensors;
}

// Names are kept as tokenizer.model or tokenizer.json, whatever the original file is called.
std::string tokenizer_name(const fs::path& tokenizer) {
  return tokenizer.extension() == ".json" ? "tokenizer.json" : "tokenizer.model";
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path folder, const TrainConfig& config, fs::path tokenizer,
                                   std::vector<CheckpointFile> extra_files)
    : folder_(std::move(folder)),
      config_(config),
      tokenizer_(std::move(tokenizer)),
      extra_files_(std::move(extra_files)) {
  fs::create_directories(folder_);
  std::vector<fs::path> abandoned;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    if (is_abandoned(entry.path())) abandoned.push_back(entry.path());
  }
  for (const fs::path& path : abandoned) {
    spdlog::warn("{}: removed: an earlier process was stopped while it wrote this checkpoint", path.string());
    fs::remove_all(path);
  }
}

fs::path CheckpointWriter::save(const Model& model, const Optimizer& optimizer, const TrainState& state) {
  set_aside_from(state.step);
  const fs::path final_path = folder_ / step_name(state.step);
  AtomicFolder folder(final_path);
  const fs::path& temporary = folder.temporary_path();
  write_safetensors(temporary / "model.safetensors", model_tensors(model));
  write_safetensors(temporary / "optimizer.safetensors", optimizer.state());
  write_file_atomically(temporary / "config.yaml", dump_config(config_));
  write_file_atomically(temporary / "train_state.json", train_state_to_json(state));
  fs::copy_file(tokenizer_, temporary / tokenizer_name(tokenizer_));
  for (const CheckpointFile& file : extra_files_) write_file_atomically(temporary / file.name, file.content);
  write_checksums(temporary);
  folder.commit();
  write_file_atomically(folder_ / "latest", final_path.filename().string() + "\n");
  prune();
  return final_path;
}

// They may be the user's only copy of something, so they are renamed, not removed.
void CheckpointWriter::set_aside_from(int64_t first_step) {
  for (const fs::path& checkpoint : list_checkpoints(folder_)) {
    if (step_of(checkpoint) < first_step) continue;
    fs::path aside;
    for (int number = 1; aside.empty() || fs::exists(aside); ++number) {
      aside = folder_ / fmt::format("superseded-{}-{}", number, checkpoint.filename().string());
    }
    fs::rename(checkpoint, aside);
    spdlog::warn("{}: set aside as {}: the run was resumed from an earlier step", checkpoint.string(),
                 aside.filename().string());
  }
}

void CheckpointWriter::prune() {
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
