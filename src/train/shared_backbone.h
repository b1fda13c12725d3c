// Runs the dense layers once for all replicas of a micro-batch, where the budget does not reach them.
//
// Every replica but the last starts from a leaf, whose gradient they add up; the last one starts from the
// states themselves and takes that sum along, so that a single backward pass reaches the dense layers.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "smoe/model/model.h"

namespace smoe {

class SharedBackbone {
 public:
  // Of steps with so many replicas a sequence.
  SharedBackbone(const ModelConfig& config, int64_t num_replicas);

  // The states that replica `replica` starts from, [B, T, D]; undefined where nothing is shared. Replicas of
  // a micro-batch follow each other from 0, each one's backward before the next one's call.
  at::Tensor states(const Model& model, const ModelInput& input, int64_t replica);

 private:
  bool is_shared_;
  int64_t num_replicas_;
  at::Tensor states_BTD_;
  at::Tensor leaf_BTD_;
};

}  // namespace smoe
