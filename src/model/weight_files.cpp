#include "smoe/model/weight_files.h"

#include <set>

#include "smoe/core/error.h"
#include "smoe/core/json.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDamagedIndex =
    "The index is damaged or incomplete; restore it from a copy or use another checkpoint";

// Tensor name to file name.
std::map<std::string, std::string> read_weight_map(const fs::path& path) {
  nlohmann::json index;
  try {
    index = read_json_file(path);
  } catch (const DataError& error) {
    throw CheckpointError(fmt::format("{}. {}", error.what(), kDamagedIndex));
  }
  SMOE_CHECK(CheckpointError,
             index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
             "{}: no object \"weight_map\" of tensor names and files. {}", path.string(), kDamagedIndex);
  SMOE_CHECK(CheckpointError, !index["weight_map"].empty(), "{}: \"weight_map\" names no tensor. {}",
             path.string(), kDamagedIndex);
  std::map<std::string, std::string> file_of_tensor;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    // A name with a folder could reach outside of the checkpoint, where no checksum covers it.
    SMOE_CHECK(CheckpointError,
               file.is_string() && fs::path(file.get<std::string>()).filename() == file.get<std::string>() &&
                   fs::path(file.get<std::string>()).extension() == ".safetensors",
               "{}: tensor \"{}\" is said to be in {}, which is not the name of a safetensors file in this "
               "folder. {}",
               path.string(), tensor, file.dump(), kDamagedIndex);
    file_of_tensor[tensor] = file.get<std::string>();
  }
  return file_of_tensor;
}

std::set<std::string> files_of(const std::map<std::string, std::string>& file_of_tensor) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : file_of_tensor) files.insert(file);
  return files;
}

// The folder's file that says where the weights are.
fs::path weights_entry(const fs::path& folder) {
  const bool single = fs::exists(folder / kWeightsFile);
  const bool sharded = fs::exists(folder / kWeightsIndexFile);
  SMOE_CHECK(CheckpointError, single || sharded,
             "{}: {} is missing, and so is {}: there are no weights. Use another folder or restore the files",
             folder.string(), kWeightsFile, kWeightsIndexFile);
  SMOE_CHECK(CheckpointError, !single || !sharded,
             "{}: both {} and {} are there, so it is not clear which are the weights; remove the one that is "
             "not meant",
             folder.string(), kWeightsFile, kWeightsIndexFile);
  return folder / (single ? kWeightsFile : kWeightsIndexFile);
}

std::string shard_name(size_t number, size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

std::vector<std::vector<DeferredTensor>> split_into_shards(const std::vector<DeferredTensor>& tensors,
                                                           uint64_t max_shard_bytes) {
  std::vector<std::vector<DeferredTensor>> shards(1);
  uint64_t bytes = 0;
  for (const DeferredTensor& tensor : tensors) {
    const bool is_full = max_shard_bytes > 0 && bytes + tensor.num_bytes() > max_shard_bytes;
    if (is_full && !shards.back().empty()) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.num_bytes();
    shards.back().push_back(tensor);
  }
  return shards;
}

}  // namespace

bool has_weight_files(const fs::path& folder) {
  return fs::exists(folder / kWeightsFile) || fs::exists(folder / kWeightsIndexFile);
}

std::vector<std::string> list_weight_files(const fs::path& folder) {
  const fs::path entry = weights_entry(folder);
  std::vector<std::string> files = {entry.filename().string()};
  if (files.front() == kWeightsIndexFile) {
    const std::set<std::string> shards = files_of(read_weight_map(entry));
    files.insert(files.end(), shards.begin(), shards.end());
  }
  return files;
}

WeightFiles::WeightFiles(const fs::path& path) : path_(fs::is_directory(path) ? weights_entry(path) : path) {
  if (path_.filename() != kWeightsIndexFile) {
    add(SafetensorsFile(path_));
    return;
  }
  const std::map<std::string, std::string> file_of_tensor = read_weight_map(path_);
  for (const std::string& name : files_of(file_of_tensor)) {
    const SafetensorsFile file(path_.parent_path() / name);
    for (const auto& [tensor, data] : file.tensors()) {
      const auto entry = file_of_tensor.find(tensor);
      SMOE_CHECK(CheckpointError, entry != file_of_tensor.end() && entry->second == name,
                 "{}: tensor \"{}\" is in {}, but the index {}. {}", path_.string(), tensor, name,
                 entry == file_of_tensor.end() ? "does not list it" : "says it is in " + entry->second,
                 kDamagedIndex);
    }
    add(file);
  }
  for (const auto& [tensor, file] : file_of_tensor) {
    SMOE_CHECK(CheckpointError, contains(tensor), "{}: tensor \"{}\" is said to be in {}, but it is not. {}",
               path_.string(), tensor, file, kDamagedIndex);
  }
}

void WeightFiles::add(const SafetensorsFile& file) {
  for (const auto& [name, tensor] : file.tensors()) {
    names_.push_back(name);
    tensors_.emplace(name, tensor);
  }
}

at::Tensor WeightFiles::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  SMOE_CHECK(CheckpointError, found != tensors_.end(), "{}: tensor \"{}\" is not among the {} tensors",
             path_.string(), name, tensors_.size());
  return found->second;
}

void write_weight_files(const fs::path& folder, const std::vector<DeferredTensor>& tensors,
                        uint64_t max_shard_bytes, const std::map<std::string, std::string>& metadata) {
  const std::vector<std::vector<DeferredTensor>> shards = split_into_shards(tensors, max_shard_bytes);
  if (shards.size() == 1) {
    write_safetensors(folder / kWeightsFile, shards.front(), metadata);
    return;
  }
  uint64_t total_bytes = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (size_t index = 0; index < shards.size(); ++index) {
    const std::string name = shard_name(index + 1, shards.size());
    write_safetensors(folder / name, shards[index], metadata);
    for (const DeferredTensor& tensor : shards[index]) {
      total_bytes += tensor.num_bytes();
      weight_map[tensor.name] = name;
    }
  }
  write_json_atomically(folder / kWeightsIndexFile,
                        {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}});
}

}  // namespace smoe
