// The store and the process groups of c10d. Only here are its headers of single backends seen.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "smoe/distributed/launch.h"

namespace smoe {

using StorePointer = c10::intrusive_ptr<c10d::Store>;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

// Connects to the store of the job; rank 0 starts it unless the launcher did.
// Throws Error.
StorePointer connect_store(const LaunchInfo& launch, std::chrono::milliseconds timeout);

struct GroupPlace {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{0};
};

// Gloo over the network interface that reaches `main_address` (or GLOO_SOCKET_IFNAME). Throws Error.
BackendPointer make_gloo_group(const StorePointer& store, const GroupPlace& place,
                               const std::string& main_address);

// Throws ConfigError in a build without NCCL.
void check_nccl(const std::string& device);

// NCCL. Throws ConfigError in a build without it.
BackendPointer make_nccl_group(const StorePointer& store, const GroupPlace& place, at::Device device);

}  // namespace smoe
