// The reading side of a checkpoint folder, for everything that needs a trained model but no optimizer.
//
//   step-00001000/
//     model.safetensors       weights and buffers; or shards and their index (weight_files.h)
//     config.yaml             resolved config of the run
//     optimizer.safetensors   moments (training only)
//     train_state.json        counters, data position, random states
//     tokenizer.model | tokenizer.json
//     checksums.json          SHA-256 of every other file
//
// A run folder holds checkpoints under checkpoints/ and the name of the newest complete one in
// checkpoints/latest.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "smoe/model/model.h"
#include "smoe/model/weight_files.h"

namespace smoe {

// The step of a folder named step-<digits>; nullopt for other names, such as those of temporary folders.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& checkpoint);

// Complete checkpoints (step-*) in `folder`, ascending by step. Temporary folders are skipped; a folder that
// does not exist holds none.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);

// The checkpoint that `path` means: itself if it is a checkpoint folder, else the newest one of the run
// folder or checkpoints folder. Throws CheckpointError that says what was looked for.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

// Verifies every file against checksums.json. Throws CheckpointError naming the first missing, extra-short
// or altered file, with the remedy.
void verify_checkpoint(const std::filesystem::path& checkpoint);

// Writes checksums.json, a JSON object of file name and SHA-256, over every other file of the folder: the
// last step of writing a checkpoint.
void write_checksums(const std::filesystem::path& checkpoint);

// The `model` section of the checkpoint's config.yaml.
ModelConfig read_checkpoint_model_config(const std::filesystem::path& checkpoint);

// data.sequence_length in the checkpoint's config.yaml; nullopt where the config has none.
std::optional<int64_t> checkpoint_sequence_length(const std::filesystem::path& checkpoint);

// Missing, surplus and misshapen tensors are all reported in one CheckpointError. The model may be on the
// meta device.
void check_weights_fit(const WeightFiles& weights, const Model& model);

// Copies tensors named like the parameters into `model`, converting between floating-point types, after
// check_weights_fit.
void load_model_weights(const std::filesystem::path& checkpoint, Model& model);

// The same from one safetensors file, or from a folder of weight files.
void load_weights_file(const std::filesystem::path& path, Model& model);

// The file of the tokenizer inside the checkpoint. Throws CheckpointError if there is none.
std::filesystem::path checkpoint_tokenizer(const std::filesystem::path& checkpoint);

// Verified, loaded and ready for evaluation (no parameter requires a gradient).
Model load_model(const std::filesystem::path& path, at::Device device);

}  // namespace smoe
