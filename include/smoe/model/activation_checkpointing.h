// Config of activation checkpointing: which layers keep nothing but their input until the backward pass, and
// compute their activations a second time there.
#pragma once

#include <array>
#include <cstdint>

#include "smoe/core/config.h"

namespace smoe {

enum class CheckpointedLayers {
  kNone,    // every activation is kept
  kAll,     // every layer is recomputed: least memory, about a third more time
  kEveryN,  // layers 0, n, 2n, ... counted from the embedding
  kMoe,     // the MoE layers
  kDense,   // the dense layers
};
template <>
struct EnumNames<CheckpointedLayers> {
  static constexpr std::array values = {
      enum_name(CheckpointedLayers::kNone, "none"), enum_name(CheckpointedLayers::kAll, "all"),
      enum_name(CheckpointedLayers::kEveryN, "every_n"), enum_name(CheckpointedLayers::kMoe, "moe_only"),
      enum_name(CheckpointedLayers::kDense, "dense_only")};
};

struct ActivationCheckpointing {
  CheckpointedLayers policy = CheckpointedLayers::kNone;
  int64_t every_n = 2;

  // Whether layer `index`, counted from the embedding, is recomputed. The first `num_dense_layers` are dense.
  bool covers(int64_t index, int64_t num_dense_layers) const {
    switch (policy) {
      case CheckpointedLayers::kNone:
        return false;
      case CheckpointedLayers::kAll:
        return true;
      case CheckpointedLayers::kEveryN:
        return index % every_n == 0;
      case CheckpointedLayers::kMoe:
        return index >= num_dense_layers;
      case CheckpointedLayers::kDense:
        return index < num_dense_layers;
    }
    return false;
  }
};
template <class Visitor>
void visit_fields(Visitor& visitor, ActivationCheckpointing& config) {
  visitor.field("policy", config.policy, "layers that are recomputed in the backward pass to save memory");
  visitor.field("every_n", config.every_n, "every_n: one layer of so many, beginning with the first",
                at_least(1));
}

}  // namespace smoe
