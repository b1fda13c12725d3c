#include "smoe/train/optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "smoe/core/error.h"

namespace smoe {
namespace {

bool has_non_finite(const at::Tensor& tensor) { return !at::isfinite(tensor).all().item<bool>(); }

}  // namespace

double learning_rate_scale(const OptimizerConfig& config, ParameterKind kind, int64_t dim) {
  switch (kind) {
    case ParameterKind::kMatrix:
      if (config.mup_base_dim == 0) return 1.0;
      return std::min(static_cast<double>(config.mup_base_dim) / static_cast<double>(dim), 1.0);
    case ParameterKind::kRouter:
      return config.router_learning_rate_scale;
    case ParameterKind::kEmbedding:
    case ParameterKind::kNorm:
    case ParameterKind::kBuffer:
      return 1.0;
  }
  SMOE_ASSERT(false);
  return 1.0;
}

Optimizer::Optimizer(const OptimizerConfig& config, const std::vector<NamedParameter>& parameters,
                     int64_t dim)
    : config_(config) {
  SMOE_ASSERT(!parameters.empty());
  step_ = at::zeros({}, parameters.front().tensor.options().dtype(at::kFloat).requires_grad(false));
  for (const NamedParameter& parameter : parameters) {
    if (parameter.kind == ParameterKind::kBuffer) continue;
    const bool is_weight =
        parameter.kind == ParameterKind::kMatrix || parameter.kind == ParameterKind::kRouter;
    Group& group = group_of(learning_rate_scale(config, parameter.kind, dim),
                            is_weight || config.decay_embeddings_and_norms);
    at::Tensor tensor = parameter.tensor;
    // The values themselves where they are exact enough, else a copy.
    const at::Tensor weights =
        tensor.detach().to(at::promote_types(tensor.scalar_type(), at::kFloat));
    if (weights.scalar_type() != tensor.scalar_type()) tensor.set_grad_dtype(weights.scalar_type());
    tensor.mutable_grad() = at::zeros_like(weights);
    group.names.push_back(parameter.name);
    group.parameters.push_back(tensor);
    group.weights.push_back(weights);
    group.first_moments.push_back(at::zeros_like(weights));
    group.second_moments.push_back(at::zeros_like(weights));
  }
}

Optimizer::Group& Optimizer::group_of(double scale, bool decays) {
  for (Group& group : groups_) {
    if (group.scale == scale && group.decays == decays) return group;
  }
  Group group;
  group.scale = scale;
  group.decays = decays;
  groups_.push_back(std::move(group));
  return groups_.back();
}

void Optimizer::take_weights() {
  const at::NoGradGuard no_gradient;
  for (Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      if (group.has_master(i)) group.weights[i].copy_(group.parameters[i]);
    }
  }
}

void Optimizer::round_masters(Group& group) {
  const at::NoGradGuard no_gradient;
  std::vector<at::Tensor> rounded, masters;
  for (size_t i = 0; i < group.names.size(); ++i) {
    if (!group.has_master(i)) continue;
    rounded.push_back(group.parameters[i].detach());
    masters.push_back(group.weights[i]);
  }
  if (!masters.empty()) at::_foreach_copy_(rounded, masters);
}

void Optimizer::zero_gradients() {
  // In place: a parameter that no token reached keeps a gradient of zeros, so it still decays.
  for (Group& group : groups_) {
    for (at::Tensor& parameter : group.parameters) parameter.mutable_grad().zero_();
  }
}

double Optimizer::gradient_norm() const {
  std::vector<at::Tensor> norms;
  for (const Group& group : groups_) {
    for (const at::Tensor& parameter : group.parameters) {
      norms.push_back(at::linalg_vector_norm(parameter.grad()).to(at::kDouble));
    }
  }
  return at::linalg_vector_norm(at::stack(norms)).item<double>();
}

void Optimizer::clip_gradients(double norm) {
  if (config_.clip_norm == 0.0 || norm <= config_.clip_norm) return;
  for (Group& group : groups_) {
    for (at::Tensor& parameter : group.parameters) parameter.mutable_grad().mul_(config_.clip_norm / norm);
  }
}

std::string Optimizer::first_non_finite_gradient() const {
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      if (has_non_finite(group.parameters[i].grad())) return group.names[i];
    }
  }
  return {};
}

void Optimizer::step(double multiplier) {
  const at::NoGradGuard no_gradient;
  step_.add_(1.0);
  ++num_steps_;
  for (Group& group : groups_) update_group(group, multiplier);
}

void Optimizer::update_group(Group& group, double multiplier) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : group.parameters) gradients.push_back(parameter.grad());
  std::vector<at::Tensor>& values = group.weights;
  const double peak = group.scale * config_.learning_rate;
  const double decay = group.decays ? config_.weight_decay : 0.0;
  // The kernel multiplies its decay by its learning rate; dividing by the peak (never by the current rate,
  // which may be 0) leaves multiplier * decay. A group that is frozen by scale 0 is decayed by hand.
  const double kernel_decay = peak > 0.0 ? decay / peak : 0.0;
  if (peak == 0.0 && decay > 0.0) at::_foreach_mul_(values, 1.0 - multiplier * decay);
  const std::vector<at::Tensor> steps(values.size(), step_);
  at::_fused_adamw_(values, gradients, group.first_moments, group.second_moments, {}, steps,
                    peak * multiplier, config_.beta1, config_.beta2, kernel_decay, config_.epsilon,
                    /*amsgrad=*/false, /*maximize=*/false);
  round_masters(group);
}

std::vector<StateSlice> Optimizer::state_slices() const {
  std::vector<StateSlice> slices;
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      const at::Tensor& first = group.first_moments[i];
      const std::vector<int64_t> shape = first.sizes().vec();
      slices.push_back({group.names[i] + ".exp_avg", shape, 0, first.numel(), first});
      slices.push_back({group.names[i] + ".exp_avg_sq", shape, 0, first.numel(), group.second_moments[i]});
      if (group.has_master(i)) {
        slices.push_back({group.names[i] + ".master", shape, 0, first.numel(), group.weights[i]});
      }
    }
  }
  return slices;
}

void Optimizer::restore(int64_t num_steps) {
  num_steps_ = num_steps;
  step_.fill_(static_cast<double>(num_steps));
  for (Group& group : groups_) round_masters(group);
}

TensorList Optimizer::state() const {
  TensorList tensors;
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      tensors.emplace_back(group.names[i] + ".exp_avg", group.first_moments[i]);
      tensors.emplace_back(group.names[i] + ".exp_avg_sq", group.second_moments[i]);
      if (group.has_master(i)) tensors.emplace_back(group.names[i] + ".master", group.weights[i]);
    }
  }
  tensors.emplace_back("step", step_);
  return tensors;
}

void Optimizer::load_state(const SafetensorsFile& file) {
  const TensorList own = state();
  std::vector<std::string> problems;
  std::set<std::string> expected;
  for (const auto& [name, tensor] : own) {
    expected.insert(name);
    if (!file.contains(name)) {
      problems.push_back(fmt::format("{} is missing", name));
    } else if (const at::Tensor saved = file.tensor(name); saved.sizes() != tensor.sizes()) {
      problems.push_back(fmt::format("{} has shape [{}], the model needs [{}]", name,
                                     fmt::join(saved.sizes(), ", "), fmt::join(tensor.sizes(), ", ")));
    } else if (saved.scalar_type() != tensor.scalar_type()) {
      problems.push_back(fmt::format("{} has type {}, the model needs {}", name,
                                     c10::toString(saved.scalar_type()),
                                     c10::toString(tensor.scalar_type())));
    }
  }
  for (const std::string& name : file.names()) {
    if (!expected.contains(name))
      problems.push_back(fmt::format("{} belongs to no parameter of the model", name));
  }
  SMOE_CHECK(CheckpointError, problems.empty(),
             "{}: the optimizer state does not fit the model:\n  {}\nResume with the config that wrote it.",
             file.path().string(), fmt::join(problems, "\n  "));
  const at::NoGradGuard no_gradient;
  for (const auto& [name, tensor] : own) at::Tensor(tensor).copy_(file.tensor(name));
  restore(static_cast<int64_t>(step_.item<float>()));
}

}  // namespace smoe
