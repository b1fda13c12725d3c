#include "process_groups.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

// Says to the next header that the library was built with Gloo.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef SMOE_NCCL
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "smoe/core/error.h"
#include "without_trace.h"

namespace smoe {
namespace {

// The address of this machine from which packets to `address` leave; empty if there is no way there.
std::string local_address_towards(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), "9", &hints, &found) != 0) return {};
  std::string local;
  for (const addrinfo* candidate = found; candidate != nullptr && local.empty();
       candidate = candidate->ai_next) {
    const int descriptor = ::socket(candidate->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    sockaddr_storage name{};
    socklen_t length = sizeof(name);
    char text[NI_MAXHOST] = {};
    // Connecting a datagram socket sends nothing; it only asks the routing table.
    if (::connect(descriptor, candidate->ai_addr, candidate->ai_addrlen) == 0 &&
        ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&name), length, text, sizeof(text), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      local = text;
    }
    ::close(descriptor);
  }
  ::freeaddrinfo(found);
  return local;
}

std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& main_address) {
  if (const auto interface = environment_variable("GLOO_SOCKET_IFNAME")) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(*interface);
  }
  const std::string local = local_address_towards(main_address);
  return local.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                       : c10d::ProcessGroupGloo::createDeviceForHostname(local);
}

}  // namespace

StorePointer connect_store(const LaunchInfo& launch, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.main_port);
  options.isServer = launch.rank == 0 && !launch.launcher_holds_store;
  options.waitWorkers = false;  // the caller waits, and can say who is missing
  options.timeout = timeout;
  try {
    const StorePointer store = c10::make_intrusive<c10d::TCPStore>(launch.main_address, options);
    return c10::make_intrusive<c10d::PrefixStore>("smoe", store);
  } catch (const std::exception& error) {
    const std::string why = without_stack_trace(error.what());
    if (options.isServer) {
      throw Error(fmt::format(
          "rank 0: the store of the job cannot listen on port {} of {}: {}. If another job has the port, set "
          "MASTER_PORT to a free one.",
          launch.main_port, launch.main_address, why));
    }
    throw Error(fmt::format(
        "rank {}: the store of the job at {}:{} cannot be reached within {:.0f} s: {}. {} must run there, "
        "and "
        "MASTER_ADDR and MASTER_PORT must be the same everywhere.",
        launch.rank, launch.main_address, launch.main_port, std::chrono::duration<double>(timeout).count(),
        why, launch.launcher_holds_store ? "The launcher" : "Rank 0"));
  }
}

BackendPointer make_gloo_group(const StorePointer& store, const GroupPlace& place,
                               const std::string& main_address) {
  auto options = c10d::ProcessGroupGloo::Options::create(place.timeout);
  options->devices.push_back(gloo_device(main_address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, place.rank, place.size, std::move(options));
}

#ifdef SMOE_NCCL
void check_nccl(const std::string& /*device*/) {}

BackendPointer make_nccl_group(const StorePointer& store, const GroupPlace& place, at::Device device) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = place.timeout;
  const c10::cuda::CUDAGuard guard(device);
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, place.rank, place.size, std::move(options));
  group->setBoundDeviceId(device);
  return group;
}
#else
void check_nccl(const std::string& device) {
  throw ConfigError(
      fmt::format("device {} with several processes needs NCCL, which this build lacks: build with the "
                  "preset `cuda` where the wheel nvidia-nccl-cu13 (SMOE_TORCH_ROUTE=full tools/setup.sh) is "
                  "installed",
                  device));
}

BackendPointer make_nccl_group(const StorePointer& /*store*/, const GroupPlace& /*place*/,
                               at::Device device) {
  check_nccl(device.str());
  return {};
}
#endif

}  // namespace smoe
