// Copies of tensors in host memory that is used again, so that they can be written while training changes the
// originals.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "smoe/train/checkpoint_parts.h"

namespace smoe {

class CheckpointSnapshot {
 public:
  // The same files with copies of their tensors. The copies are complete on return, and valid until the next
  // call, which writes over them where sizes and types are the same. Tensors on a GPU are copied into pinned
  // memory, all under way at once.
  std::vector<TensorFile> copy(const std::vector<TensorFile>& files);

 private:
  std::vector<at::Tensor> buffers_;
};

}  // namespace smoe
