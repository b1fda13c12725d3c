#include "smoe/routing/host_to_device.h"

namespace smoe {

at::Tensor copy_to_device(const at::Tensor& host, at::Device device) {
  if (host.device() == device || (host.is_cpu() && device.is_cpu())) return host;
  // The allocator of page-locked memory keeps a block until the copies out of it are done.
  if (host.is_cpu() && device.is_cuda()) return host.pin_memory().to(device, /*non_blocking=*/true);
  return host.to(device);
}

at::Tensor copy_to_device(const std::vector<int64_t>& host, at::Device device) {
  return copy_to_device(at::tensor(host, at::TensorOptions().dtype(at::kLong)), device);
}

}  // namespace smoe
