#include "smoe/train/checkpoint_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "smoe/core/error.h"
#include "smoe/model/weight_files.h"

namespace smoe {
namespace {

std::string part_name(const char* kind, int64_t part, int64_t num_parts) {
  return num_parts == 1 ? fmt::format("{}.safetensors", kind)
                        : fmt::format("{}-{:05}-of-{:05}.safetensors", kind, part + 1, num_parts);
}

// Public readers of the index take every file it names for one with tensors.
int64_t num_model_parts(const TensorList& tensors, int64_t world_size) {
  return std::min(world_size, static_cast<int64_t>(tensors.size()));
}

}  // namespace

TensorList model_tensors(const Model& model) {
  TensorList tensors;
  for (const NamedParameter& parameter : model.parameters()) {
    tensors.emplace_back(parameter.name, parameter.tensor.detach());
  }
  return tensors;
}

std::vector<int64_t> deal_by_bytes(const TensorList& tensors, int64_t num_parts) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return tensors[left].second.nbytes() > tensors[right].second.nbytes();
  });
  std::vector<size_t> bytes(static_cast<size_t>(num_parts), 0);
  std::vector<int64_t> part_of(tensors.size(), 0);
  for (const size_t index : order) {
    const auto lightest = std::min_element(bytes.begin(), bytes.end());
    *lightest += tensors[index].second.nbytes();
    part_of[index] = lightest - bytes.begin();
  }
  return part_of;
}

TensorFile model_part(const TensorList& tensors, int64_t rank, int64_t world_size) {
  SMOE_ASSERT(rank >= 0 && rank < world_size);
  const int64_t num_parts = num_model_parts(tensors, world_size);
  TensorFile file;
  if (rank >= num_parts) return file;
  file.name = part_name("model", rank, num_parts);
  const std::vector<int64_t> part_of = deal_by_bytes(tensors, num_parts);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (part_of[i] == rank) file.tensors.push_back(tensors[i]);
  }
  return file;
}

std::string model_index(const TensorList& tensors, int64_t world_size) {
  const int64_t num_parts = num_model_parts(tensors, world_size);
  const std::vector<int64_t> part_of = deal_by_bytes(tensors, num_parts);
  size_t total_bytes = 0;
  nlohmann::json file_of = nlohmann::json::object();
  for (size_t i = 0; i < tensors.size(); ++i) {
    total_bytes += tensors[i].second.nbytes();
    file_of[tensors[i].first] = part_name("model", part_of[i], num_parts);
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", file_of}};
  return index.dump(2) + "\n";
}

TensorFile optimizer_part(const std::vector<StateSlice>& slices, int64_t num_updates, int64_t rank,
                          int64_t world_size) {
  TensorFile file;
  file.name = part_name("optimizer", rank, world_size);
  nlohmann::json pieces = nlohmann::json::object();
  for (const StateSlice& slice : slices) {
    SMOE_ASSERT(slice.num_elements() == slice.values.numel());
    if (slice.num_elements() == 0) continue;
    file.tensors.emplace_back(slice.name, slice.values.detach().flatten());
    pieces[slice.name] = {{"shape", slice.shape}, {"begin", slice.begin}, {"end", slice.end}};
  }
  file.metadata["pieces"] = pieces.dump();
  file.metadata["updates"] = std::to_string(num_updates);
  return file;
}

std::vector<TensorFile> checkpoint_part(const Model& model, const Optimizer& optimizer, int64_t rank,
                                        int64_t world_size) {
  std::vector<TensorFile> files = {model_part(model_tensors(model), rank, world_size)};
  if (world_size == 1) {
    files.push_back({"optimizer.safetensors", optimizer.state(), {}});
  } else if (optimizer.owns_slices()) {
    files.push_back(optimizer_part(optimizer.state_slices(), optimizer.num_steps(), rank, world_size));
  }
  std::erase_if(files, [](const TensorFile& file) { return file.name.empty(); });
  return files;
}

}  // namespace smoe
