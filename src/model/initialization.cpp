#include "smoe/model/initialization.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <string>

#include "smoe/core/random.h"

namespace smoe {
namespace {

// FNV-1a: std::hash may differ between standard libraries, and with it every initial weight.
uint64_t hash_name(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char character : name) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3ULL;
  }
  return hash;
}

void fill_normal(const NamedParameter& parameter, double scale, uint64_t seed) {
  const double deviation = scale / std::sqrt(static_cast<double>(parameter.tensor.size(-1)));
  at::Generator generator = at::detail::createCPUGenerator(mix_seeds(seed, hash_name(parameter.name)));
  // Drawn on the CPU in float32 whatever the device and dtype, so that both give the same weights.
  const at::Tensor values =
      at::normal(0.0, deviation, parameter.tensor.sizes(), generator, at::TensorOptions().dtype(at::kFloat));
  parameter.tensor.copy_(values);
}

}  // namespace

void initialize_parameters(const std::vector<NamedParameter>& parameters, const ModelConfig& config,
                           uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : parameters) {
    switch (parameter.kind) {
      case ParameterKind::kNorm:
        parameter.tensor.fill_(1.0);
        break;
      case ParameterKind::kBuffer:
        parameter.tensor.zero_();
        break;
      case ParameterKind::kRouter:
        fill_normal(parameter, config.router_init_scale, seed);
        break;
      case ParameterKind::kEmbedding:
      case ParameterKind::kMatrix:
        fill_normal(parameter, 1.0, seed);
        break;
    }
  }
}

}  // namespace smoe
