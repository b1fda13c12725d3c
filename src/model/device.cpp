#include "smoe/model/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "smoe/core/available_cores.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

// N of cuda:N, 0 of cuda; no value for any other word.
std::optional<int> cuda_index(std::string_view name) {
  if (name == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || index < 0) {
    return std::nullopt;
  }
  return index;
}

}  // namespace

at::Device resolve_device(const std::string& name) {
  if (name == "cpu") return at::kCPU;
  const std::optional<int> index = cuda_index(name);
  SMOE_CHECK(ConfigError, index.has_value(), "device: found `{}`; allowed: cpu, cuda, cuda:N", name);
  SMOE_CHECK(
      ConfigError, at::hasCUDA(),
      "device is {}, but this build or machine has no usable CUDA device; set device to cpu, or build with "
      "the preset `cuda` on a machine with an NVIDIA GPU",
      name);
  const int count = static_cast<int>(at::getNumGPUs());
  SMOE_CHECK(ConfigError, *index < count,
             "device is {}, but there are {} CUDA devices; use cuda:0 to cuda:{}", name, count, count - 1);
  return {at::kCUDA, static_cast<at::DeviceIndex>(*index)};
}

void set_num_threads(int64_t num_threads) {
  at::set_num_threads(static_cast<int>(num_threads == 0 ? available_cores() : num_threads));
}

int64_t peak_memory_bytes(at::Device device) {
  if (device.is_cpu()) {
    struct rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<int64_t>(usage.ru_maxrss) * 1024;
  }
  const auto statistics = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return statistics.allocated_bytes[kAggregate].peak;
}

}  // namespace smoe
