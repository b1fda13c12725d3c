#include "smoe/train/precision.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

namespace smoe {
namespace {

std::string read_cpu_info() {
  std::ifstream file("/proc/cpuinfo");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

at::ScalarType scalar_type(TrainDtype dtype) {
  return dtype == TrainDtype::kBfloat16 ? at::kBFloat16 : at::kFloat;
}

bool multiplies_bfloat16(const std::string& cpu_info) {
  static const std::set<std::string> instructions = {"amx_bf16", "avx512_bf16", "bf16"};
  std::istringstream words(cpu_info);
  for (std::string word; words >> word;) {
    if (instructions.contains(word)) return true;
  }
  return false;
}

std::string why_slow(TrainDtype dtype, at::Device device) {
  if (dtype == TrainDtype::kFloat32 || !device.is_cpu()) return {};
  if (multiplies_bfloat16(read_cpu_info())) {
    return "dtype is bf16 on a CPU: its experts and layers run without the fused loops of fp32, at about 0.6 "
           "times "
           "their speed; set dtype to fp32 for speed";
  }
  return "dtype is bf16, and this CPU has no instructions for it (AMX or AVX512-BF16): training will be "
         "several "
         "times slower than with dtype: fp32";
}

}  // namespace smoe
