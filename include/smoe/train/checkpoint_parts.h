// Which process writes what of a checkpoint. One process writes model.safetensors and optimizer.safetensors;
// several write, without sending tensors to each other,
//
//   model-00001-of-0000N.safetensors      whole weights, dealt out by bytes
//   optimizer-00001-of-0000N.safetensors  the pieces of the optimizer state that the process holds, flat
//
// and model.safetensors.index.json names the file of every weight. The metadata key `pieces` of an optimizer
// file is a JSON object: tensor name to {"shape": of the whole tensor, "begin": .., "end": ..}, the range of
// its flat elements that the file has. `updates` is the number of updates the state comes from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "smoe/model/model.h"
#include "smoe/model/safetensors.h"
#include "smoe/train/optimizer.h"
#include "smoe/train/state_slice.h"

namespace smoe {

struct TensorFile {
  std::string name;
  TensorList tensors;
  std::map<std::string, std::string> metadata;
};

// Weights and buffers under their names, as handles.
TensorList model_tensors(const Model& model);

// For every tensor the part that gets it, in [0, num_parts): the largest first, each to the part that has the
// fewest bytes so far. A function of sizes and order only, so that all processes come to the same result.
std::vector<int64_t> deal_by_bytes(const TensorList& tensors, int64_t num_parts);

// The weights that process `rank` of `world_size` writes. Without tensors where there are more processes than
// weights.
TensorFile model_part(const TensorList& tensors, int64_t rank, int64_t world_size);

// The content of model.safetensors.index.json for `world_size` parts.
std::string model_index(const TensorList& tensors, int64_t world_size);

// The pieces of the optimizer state that process `rank` of several writes.
TensorFile optimizer_part(const std::vector<StateSlice>& slices, int64_t num_updates, int64_t rank,
                          int64_t world_size);

// All files that process `rank` writes.
std::vector<TensorFile> checkpoint_part(const Model& model, const Optimizer& optimizer, int64_t rank,
                                        int64_t world_size);

}  // namespace smoe
