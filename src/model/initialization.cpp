#include "smoe/model/initialization.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
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

void fill_normal(const NamedParameter& parameter, double deviation, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(mix_seeds(seed, hash_name(parameter.name)));
  // Drawn on the CPU in float32 whatever the device and dtype, so that both give the same weights.
  const at::Tensor values =
      at::normal(0.0, deviation, parameter.tensor.sizes(), generator, at::TensorOptions().dtype(at::kFloat));
  parameter.tensor.copy_(values);
}

// Width that a projection sums over for one token, all active experts together.
int64_t active_fan_in(const NamedParameter& parameter, const ModelConfig& config) {
  const bool is_expert = parameter.name.find("shared_expert") != std::string::npos ||
                         parameter.name.find("routed_experts") != std::string::npos;
  if (!is_expert || config.budgets.empty()) {
    return parameter.tensor.size(-1);
  }
  // Vanilla routing weights sum to one, whatever k: the sum is as wide as one routed expert.
  const bool weighted =
      config.architecture == Architecture::kVanillaMoe && config.token_router.normalize_weights;
  const int64_t routed = weighted ? 1 : config.budgets.back().experts_per_layer;
  return std::max<int64_t>(1, config.num_shared_experts + routed) * config.expert_dim;
}

double matrix_deviation(const NamedParameter& parameter, const ModelConfig& config) {
  if (!parameter.name.ends_with("o_proj.weight") && !parameter.name.ends_with("down_proj.weight")) {
    return 1.0 / std::sqrt(static_cast<double>(parameter.tensor.size(-1)));
  }
  const double variance_share =
      2.0 * static_cast<double>(config.num_layers() * active_fan_in(parameter, config));
  return config.residual_init_scale / std::sqrt(variance_share);
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
      case ParameterKind::kRouter: {
        // The scale is one of the logits, not of a hidden layer before them.
        const bool is_hidden = parameter.name == "mask_generator.hidden.weight";
        fill_normal(parameter,
                    (is_hidden ? 1.0 : config.router_init_scale) /
                        std::sqrt(static_cast<double>(parameter.tensor.size(-1))),
                    seed);
        break;
      }
      case ParameterKind::kEmbedding:
        fill_normal(parameter, 1.0 / std::sqrt(static_cast<double>(config.dim)), seed);
        break;
      case ParameterKind::kMatrix:
        fill_normal(parameter, matrix_deviation(parameter, config), seed);
        break;
    }
  }
}

}  // namespace smoe
