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
    : Optimizer(config,
                std::make_shared<DataParallel>(parameters, Communicator::single(), DistributedConfig{}),
                dim) {}

Optimizer::Optimizer(const OptimizerConfig& config, std::shared_ptr<DataParallel> parallel, int64_t dim)
    : config_(config), parallel_(std::move(parallel)) {
  for (const ParameterSlice& slice : parallel_->slices()) {
    const bool is_weight = slice.kind == ParameterKind::kMatrix || slice.kind == ParameterKind::kRouter;
    Group& group = group_of(learning_rate_scale(config, slice.kind, dim),
                            is_weight || config.decay_embeddings_and_norms);
    // The values themselves where they are exact enough, else a copy.
    const at::Tensor weights = slice.values.to(at::promote_types(slice.values.scalar_type(), at::kFloat));
    group.slices.push_back(slice);
    group.weights.push_back(weights);
    group.first_moments.push_back(at::zeros_like(weights));
    group.second_moments.push_back(at::zeros_like(weights));
  }
  step_ = at::zeros({}, parallel_->options().dtype(at::kFloat));
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
    for (size_t i = 0; i < group.slices.size(); ++i) {
      if (group.has_master(i)) group.weights[i].copy_(group.slices[i].values);
    }
  }
}

void Optimizer::round_masters(Group& group) {
  const at::NoGradGuard no_gradient;
  std::vector<at::Tensor> rounded, masters;
  for (size_t i = 0; i < group.slices.size(); ++i) {
    if (!group.has_master(i)) continue;
    rounded.push_back(group.slices[i].values);
    masters.push_back(group.weights[i]);
  }
  if (!masters.empty()) at::_foreach_copy_(rounded, masters);
}

void Optimizer::zero_gradients() { parallel_->zero_gradients(); }

double Optimizer::gradient_norm() const {
  std::vector<at::Tensor> norms;
  for (const Group& group : groups_) {
    for (const ParameterSlice& slice : group.slices)
      norms.push_back(at::linalg_vector_norm(slice.gradient()).to(at::kDouble));
  }
  if (parallel_->holds_whole_parameters()) return at::linalg_vector_norm(at::stack(norms)).item<double>();
  // A process may hold nothing but padding.
  const at::Tensor square = norms.empty() ? at::zeros({}, parallel_->options().dtype(at::kDouble))
                                          : at::stack(norms).square().sum();
  parallel_->sum_over_shards(square, "gradient norm");
  return std::sqrt(square.item<double>());
}

void Optimizer::clip_gradients(double norm) {
  if (config_.clip_norm == 0.0 || norm <= config_.clip_norm) return;
  for (const Group& group : groups_) {
    for (const ParameterSlice& slice : group.slices) slice.gradient().mul_(config_.clip_norm / norm);
  }
}

std::string Optimizer::first_non_finite_gradient() const {
  for (const Group& group : groups_) {
    for (const ParameterSlice& slice : group.slices) {
      if (has_non_finite(slice.gradient())) return slice.name;
    }
  }
  return {};
}

void Optimizer::step(double multiplier) {
  const at::NoGradGuard no_gradient;
  step_.add_(1.0);
  ++num_steps_;
  for (Group& group : groups_) update_group(group, multiplier);
  parallel_->gather_parameters();
}

void Optimizer::update_group(Group& group, double multiplier) {
  std::vector<at::Tensor> gradients;
  for (const ParameterSlice& slice : group.slices) gradients.push_back(slice.gradient());
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
  std::vector<StateSlice> states;
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.slices.size(); ++i) {
      const ParameterSlice& slice = group.slices[i];
      const auto add = [&](const char* name, const at::Tensor& values) {
        states.push_back({slice.name + name, slice.shape, slice.begin, slice.end, values});
      };
      add(".exp_avg", group.first_moments[i]);
      add(".exp_avg_sq", group.second_moments[i]);
      if (group.has_master(i)) add(".master", group.weights[i]);
    }
  }
  return states;
}

void Optimizer::restore(int64_t num_steps) {
  num_steps_ = num_steps;
  step_.fill_(static_cast<double>(num_steps));
  for (Group& group : groups_) round_masters(group);
  parallel_->gather_parameters();
}

TensorList Optimizer::state() const {
  SMOE_ASSERT(parallel_->holds_whole_parameters());
  TensorList tensors;
  for (const StateSlice& slice : state_slices()) tensors.emplace_back(slice.name, slice.values);
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
