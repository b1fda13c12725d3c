// A streaming package: a model whose routed experts can be read one by one while it runs.
//
//   resident.safetensors   every parameter but the routed experts      config.yaml   tokenizer file, if any
//   experts.bin            one block for each expert of each MoE layer, layer by layer, blocks 4 KiB aligned
//   index.json             format, version, encoding, shapes, offset and checksum of every block, SHA-256 of
//   the
//                          other files and of itself
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "smoe/infer/expert_layout.h"
#include "smoe/model/model_config.h"

namespace smoe {

// XXH3, 64 bits, over a whole block.
uint64_t expert_checksum(const std::byte* block, int64_t num_bytes);

struct ExpertBlock {
  int64_t offset = 0;
  uint64_t checksum = 0;
};

// What index.json says.
struct PackageIndex {
  ExpertLayout layout;
  int64_t num_moe_layers = 0;
  int64_t num_experts = 0;
  std::vector<ExpertBlock> blocks;                 // [L * E], layer-major
  std::map<std::string, std::string> file_sha256;  // every other file but experts.bin
};

void write_package_index(const std::filesystem::path& folder, const PackageIndex& index);

class StreamingPackage {
 public:
  // Reads index and config and checks them against each other and against the size of experts.bin. Throws
  // CheckpointError that says whether the package is foreign, of another version, damaged or cut short.
  explicit StreamingPackage(std::filesystem::path folder);

  // Compares the files other than experts.bin with their SHA-256. Throws CheckpointError naming the first
  // that is missing or differs.
  void verify_files() const;
  // Reads all of experts.bin and compares every block. Throws CheckpointError naming layer and expert.
  void verify_experts() const;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path experts_path() const;
  std::filesystem::path resident_path() const;
  std::optional<std::filesystem::path> tokenizer_path() const;
  const ModelConfig& model_config() const { return config_; }
  const ExpertLayout& layout() const { return index_.layout; }
  int64_t num_moe_layers() const { return index_.num_moe_layers; }
  int64_t num_experts() const { return index_.num_experts; }
  const ExpertBlock& block(int64_t layer, int64_t expert) const;
  int64_t experts_bytes() const;

 private:
  std::filesystem::path folder_;
  PackageIndex index_;
  ModelConfig config_;
};

}  // namespace smoe
