// The weights of a model in one safetensors file or in several with an index, the layout of Hugging Face:
//
//   model.safetensors                        or   model-00001-of-00003.safetensors, ...
//                                                 model.safetensors.index.json
//
// The index is a JSON object whose `weight_map` gives the file of every tensor.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "smoe/model/safetensors.h"

namespace smoe {

inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";

// True if the folder holds one of the two, whatever is in it.
bool has_weight_files(const std::filesystem::path& folder);

// The names in the folder that make up the weights: the one file, or the index and every file it names,
// sorted. Throws CheckpointError if there are none, if both kinds are there, or if the index is damaged.
std::vector<std::string> list_weight_files(const std::filesystem::path& folder);

// All tensors of a model, whichever files they are in, as views of memory maps.
class WeightFiles {
 public:
  // `path` is a folder, or one safetensors file. Throws CheckpointError naming file and tensor where a file
  // is missing or damaged, or where index and files contradict each other.
  explicit WeightFiles(const std::filesystem::path& path);

  const std::vector<std::string>& names() const { return names_; }  // by file, in file order
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  // Read-only; clone before writing. Throws CheckpointError if absent.
  at::Tensor tensor(const std::string& name) const;
  // The one file or the index, for messages.
  const std::filesystem::path& path() const { return path_; }

 private:
  void add(const SafetensorsFile& file);

  std::filesystem::path path_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, at::Tensor> tensors_;
};

// Writes tensors in the order given into `folder`: one file, or, where they need more than `max_shard_bytes`,
// several and their index. A tensor larger than that has a file of its own. `max_shard_bytes` 0: one file.
void write_weight_files(const std::filesystem::path& folder, const std::vector<DeferredTensor>& tensors,
                        uint64_t max_shard_bytes, const std::map<std::string, std::string>& metadata = {});

}  // namespace smoe
