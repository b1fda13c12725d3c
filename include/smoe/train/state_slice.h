// A part of the optimizer's state that one process holds, in coordinates of the whole tensor. This is what
// checkpoints store, so that a run can go on with another number of processes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

namespace smoe {

struct StateSlice {
  std::string name;            // PARAMETER.exp_avg, PARAMETER.exp_avg_sq (and masters, where there are any)
  std::vector<int64_t> shape;  // of the whole tensor
  // The slice holds the elements [begin, end) of the whole tensor, flattened row by row.
  int64_t begin = 0;
  int64_t end = 0;
  at::Tensor values;  // flat or of the whole shape, contiguous, end - begin elements; a handle, not a copy

  int64_t num_elements() const { return end - begin; }
};

// Every process of a shard group holds different slices; together they cover every tensor once. With hybrid
// sharding the groups hold copies of each other, and only one of them (`owns_slices`) needs to be saved.

}  // namespace smoe
