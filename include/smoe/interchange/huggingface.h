// Checkpoints to and from the folders of Hugging Face's transformers: config.json, safetensors (in shards
// with an index where they are large), tokenizer and chat template.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace smoe {

// What a conversion has done, and what it could not carry over.
struct InterchangeSummary {
  std::string model_class;  // "LlamaForCausalLM"
  size_t num_tensors = 0;   // written
  uint64_t num_bytes = 0;
  size_t num_files = 0;            // of weights
  std::vector<std::string> notes;  // sentences for the user
};

struct HuggingFaceExportOptions {
  std::optional<at::ScalarType> dtype;       // of all tensors; default: as stored
  uint64_t max_shard_bytes = 5'000'000'000;  // 0: one file
  std::string budget;                        // vanilla_moe with several budgets: the one that is exported
  std::optional<int64_t> max_positions;      // default: the sequence length of the checkpoint's training
};

// Writes the newest checkpoint that `path` means as the new folder `out`, complete or not at all. Throws
// CheckpointError if no class of transformers computes what the model does.
InterchangeSummary export_huggingface(const std::filesystem::path& path, const std::filesystem::path& out,
                                      const HuggingFaceExportOptions& options);

struct HuggingFaceImportOptions {
  std::optional<at::ScalarType> dtype;    // of all tensors; default: as stored
  uint64_t max_shard_bytes = 0;           // 0: one file
  std::vector<std::string> ignored_keys;  // of config.json, that would be refused as unknown
  std::filesystem::path tokenizer;        // instead of the folder's
  std::filesystem::path chat_template;    // YAML, instead of the folder's
};

// Writes the model in `folder` as the checkpoint folder `out`, which evaluation, generation, serving and
// initialize_from read. Throws CheckpointError or DataError for whatever our models cannot represent.
InterchangeSummary import_huggingface(const std::filesystem::path& folder, const std::filesystem::path& out,
                                      const HuggingFaceImportOptions& options);

}  // namespace smoe
