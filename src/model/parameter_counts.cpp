// Counts follow the tensors of docs/checkpoint_format.md one to one.
#include "smoe/model/parameter_counts.h"

#include <algorithm>
#include <cmath>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// gate, up and down.
int64_t swiglu_parameters(int64_t dim, int64_t hidden) { return 3 * dim * hidden; }

int64_t attention_parameters_per_layer(const ModelConfig& config) {
  const int64_t query_width = config.num_heads * config.head_dim;
  const int64_t key_width = config.num_kv_heads * config.head_dim;
  return config.dim * (2 * query_width + 2 * key_width);
}

int64_t norm_parameters(const ModelConfig& config) {
  const int64_t per_layer = 2 * config.dim + (config.qk_norm ? 2 * config.head_dim : 0);
  return config.num_layers() * per_layer + config.dim;
}

// Of the matrices that turn one token's state into logits for all layers.
int64_t router_matrices(const ModelConfig& config) {
  const int64_t logits = config.num_moe_layers * config.num_experts;
  const MaskHeadConfig& head = config.routing.mask_head;
  if (config.architecture == Architecture::kSteppedMoe && head.kind == MaskHeadKind::kMlp) {
    return head.hidden_dim * (config.dim + logits);
  }
  return config.architecture == Architecture::kDense ? 0 : config.dim * logits;
}

int64_t router_parameters(const ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::kDense:
      return 0;
    case Architecture::kSteppedMoe:
      return config.dim + router_matrices(config) +
             (config.routing.mask_head.normalize_layers ? config.num_moe_layers : 0);
    case Architecture::kVanillaMoe:
      return router_matrices(config);
  }
  return 0;
}

bool has_experts(const ModelConfig& config) { return config.architecture != Architecture::kDense; }

bool has_size_embedding(const ModelConfig& config) {
  return config.architecture == Architecture::kSteppedMoe && config.size_embedding != SizeEmbedding::kNone;
}

// Routed parameters of `experts` experts in every MoE layer.
int64_t routed_parameters(const ModelConfig& config, int64_t experts) {
  return config.num_moe_layers * experts * swiglu_parameters(config.dim, config.expert_dim);
}

ParameterCounts component_counts(const ModelConfig& config) {
  ParameterCounts counts;
  counts.token_embedding = config.vocab_size * config.dim;
  counts.output_head = config.tied_embeddings ? 0 : config.vocab_size * config.dim;
  counts.attention = config.num_layers() * attention_parameters_per_layer(config);
  counts.dense_ffn = config.num_dense_layers * swiglu_parameters(config.dim, config.dense_ffn_dim);
  counts.norms = norm_parameters(config);
  counts.routers = router_parameters(config);
  if (has_experts(config)) {
    counts.shared_experts = config.num_moe_layers * swiglu_parameters(config.dim, config.shared_dim());
    counts.routed_experts = routed_parameters(config, config.num_experts);
  }
  if (has_size_embedding(config)) {
    counts.size_embedding = static_cast<int64_t>(config.budgets.size()) * config.dim;
  }
  counts.total = counts.token_embedding + counts.output_head + counts.attention + counts.dense_ffn +
                 counts.shared_experts + counts.routed_experts + counts.routers + counts.size_embedding +
                 counts.norms;
  counts.kv_cache_values_per_token = 2 * config.num_layers() * config.num_kv_heads * config.head_dim;
  return counts;
}

// Active parameters that do not depend on k, without embedding and head.
int64_t fixed_active(const ModelConfig& config, const ParameterCounts& counts) {
  const int64_t token_routers = config.architecture == Architecture::kVanillaMoe ? counts.routers : 0;
  return counts.attention + counts.dense_ffn + counts.shared_experts + counts.norms + token_routers +
         (has_size_embedding(config) ? config.dim : 0);
}

double forward_flops(const ModelConfig& config, const ParameterCounts& counts, int64_t experts,
                     int64_t sequence_length) {
  const double head = static_cast<double>(config.vocab_size * config.dim);
  double routing = static_cast<double>(router_matrices(config));
  if (config.architecture == Architecture::kSteppedMoe) {
    routing /= static_cast<double>(config.routing.segment_length);  // runs at one token a segment
  }
  const double matrices = static_cast<double>(counts.attention + counts.dense_ffn + counts.shared_experts) +
                          routing + head +
                          static_cast<double>(has_experts(config) ? routed_parameters(config, experts) : 0);
  // Scores and weighted sum: each one multiply-accumulate a key, head and channel, over T/2 keys on average.
  const double scores = static_cast<double>(config.num_layers() * config.num_heads * config.head_dim) *
                        static_cast<double>(sequence_length);
  return 2.0 * (matrices + scores);
}

BudgetCounts budget_counts(const ModelConfig& config, const ParameterCounts& counts, const std::string& name,
                           int64_t experts, int64_t sequence_length) {
  BudgetCounts budget;
  budget.name = name;
  budget.experts_per_layer = experts;
  budget.loaded_per_refresh = has_experts(config) ? routed_parameters(config, experts) : 0;
  budget.active_non_embedding = fixed_active(config, counts) + budget.loaded_per_refresh;
  budget.active = budget.active_non_embedding + counts.token_embedding + counts.output_head;
  budget.forward_flops_per_token = forward_flops(config, counts, experts, sequence_length);
  return budget;
}

}  // namespace

ParameterCounts count_parameters(const ModelConfig& config, int64_t sequence_length) {
  ParameterCounts counts = component_counts(config);
  if (!has_experts(config)) {
    counts.budgets.push_back(budget_counts(config, counts, "dense", 0, sequence_length));
    return counts;
  }
  for (const BudgetConfig& budget : config.budgets) {
    counts.budgets.push_back(
        budget_counts(config, counts, budget.name, budget.experts_per_layer, sequence_length));
  }
  return counts;
}

int64_t solve_experts_per_layer(const ModelConfig& config, double target_active, CountingRule rule) {
  SMOE_CHECK(
      ConfigError, has_experts(config) && config.num_moe_layers > 0,
      "the model has no routed experts (architecture {}, num_moe_layers {}), so no number of experts reaches "
      "an active size; use the width solver of dense models",
      enum_to_name(config.architecture), config.num_moe_layers);
  const ParameterCounts counts = component_counts(config);
  int64_t fixed = fixed_active(config, counts);
  if (rule == CountingRule::kWithEmbedding) {
    fixed += counts.token_embedding + counts.output_head;
  }
  const double step = static_cast<double>(routed_parameters(config, 1));
  const double experts = (target_active - static_cast<double>(fixed)) / step;
  SMOE_CHECK(
      ConfigError, experts >= -0.5 && experts <= static_cast<double>(config.num_experts) + 0.5,
      "an active size of {:.4g} parameters is out of reach: with the rule {} this model spans {} (no routed "
      "experts) to {} (all {}); choose a target in that range or change expert_dim, num_experts or the "
      "skeleton",
      target_active, enum_to_name(rule), fixed, fixed + routed_parameters(config, config.num_experts),
      config.num_experts);
  return std::clamp<int64_t>(std::llround(experts), 0, config.num_experts);
}

int64_t solve_dense_ffn_dim(const ModelConfig& config, double target_active) {
  const int64_t layers = config.num_layers();
  const int64_t fixed = layers * attention_parameters_per_layer(config) + norm_parameters(config);
  const double per_column = static_cast<double>(layers * swiglu_parameters(config.dim, 1));
  const double width = (target_active - static_cast<double>(fixed)) / per_column;
  SMOE_CHECK(ConfigError, width >= 0.5,
             "a dense model of {:.4g} parameters is out of reach: attention and norms of {} layers of width "
             "{} alone "
             "have {}; choose a larger target or a smaller skeleton",
             target_active, layers, config.dim, fixed);
  return std::llround(width);
}

}  // namespace smoe
