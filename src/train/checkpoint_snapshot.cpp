#include "smoe/train/checkpoint_snapshot.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace smoe {
namespace {

bool fits(const at::Tensor& buffer, const at::Tensor& tensor) {
  return buffer.sizes() == tensor.sizes() && buffer.scalar_type() == tensor.scalar_type();
}

at::Tensor make_buffer(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(tensor.is_cuda()));
}

// Waits for the copies that were started on the device's current stream.
void synchronize(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

}  // namespace

std::vector<TensorFile> CheckpointSnapshot::copy(const std::vector<TensorFile>& files) {
  const at::NoGradGuard no_gradient;
  std::vector<TensorFile> copies = files;
  size_t index = 0;
  at::Device device = at::kCPU;
  for (TensorFile& file : copies) {
    for (auto& [name, tensor] : file.tensors) {
      if (index == buffers_.size()) buffers_.emplace_back(make_buffer(tensor));
      at::Tensor& buffer = buffers_[index++];
      if (!fits(buffer, tensor)) buffer = make_buffer(tensor);
      buffer.copy_(tensor, /*non_blocking=*/true);
      if (!tensor.is_cpu()) device = tensor.device();
      tensor = buffer;
    }
  }
  buffers_.resize(index);
  synchronize(device);
  return copies;
}

}  // namespace smoe
