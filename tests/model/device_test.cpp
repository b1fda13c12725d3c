#include "smoe/model/device.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smoe/core/available_cores.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;

std::string device_error(const std::string& name) {
  try {
    resolve_device(name);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ResolveDevice, RefusesWordsThatAreNoDevice) {
  EXPECT_EQ(resolve_device("cpu"), at::Device(at::kCPU));
  for (const char* name :
       {"", "gpu", "meta", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999"}) {
    EXPECT_THAT(device_error(name), HasSubstr("allowed: cpu, cuda, cuda:N")) << name;
  }
}

TEST(ResolveDevice, RefusesAGpuThatIsNotThere) {
  if (!at::hasCUDA()) {
    EXPECT_THAT(device_error("cuda:0"), HasSubstr("no usable CUDA device"));
  } else {
    EXPECT_THAT(device_error("cuda:999"), HasSubstr("CUDA devices; use cuda:0"));
  }
}

TEST(SetNumThreads, ZeroTakesTheCoresOfTheProcess) {
  const int original = at::get_num_threads();
  set_num_threads(0);
  EXPECT_EQ(at::get_num_threads(), available_cores());
  set_num_threads(1);
  EXPECT_EQ(at::get_num_threads(), 1);
  set_num_threads(original);
}

TEST(PeakMemory, OfTheCpuIsTheResidentSet) {
  const int64_t before = peak_memory_bytes(at::kCPU);
  EXPECT_GT(before, int64_t{1} << 20);
  const at::Tensor block = at::ones({int64_t{1} << 30}, at::kByte);
  EXPECT_GT(peak_memory_bytes(at::kCPU), before + (int64_t{1} << 29));
}

}  // namespace
}  // namespace smoe
