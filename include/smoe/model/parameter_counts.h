// Exact parameter, FLOP and memory counts of a config, without allocating the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smoe/model/model_config.h"

namespace smoe {

struct BudgetCounts {
  std::string name;
  int64_t experts_per_layer = 0;
  // Parameters that every token uses, embeddings included (one copy when tied). The mask generator, which
  // runs once a segment, is not among them; the routers of a vanilla MoE, which run at every token, are.
  int64_t active = 0;
  int64_t active_non_embedding = 0;  // without token embedding and output head
  int64_t loaded_per_refresh = 0;    // routed parameters of one choice of experts
  double forward_flops_per_token =
      0;  // 2 * multiply-accumulates at `sequence_length`, attention scores included
};

struct ParameterCounts {
  int64_t total = 0;
  int64_t token_embedding = 0;
  int64_t output_head = 0;  // 0 when tied
  int64_t attention = 0;
  int64_t dense_ffn = 0;
  int64_t shared_experts = 0;
  int64_t routed_experts = 0;
  int64_t routers = 0;  // mask generator, or the vanilla routers
  int64_t size_embedding = 0;
  int64_t norms = 0;
  std::vector<BudgetCounts> budgets;  // a dense model has one, named "dense"
  int64_t kv_cache_values_per_token = 0;
};

// `sequence_length` matters for the attention part of the FLOPs only (causal: half of the square).
ParameterCounts count_parameters(const ModelConfig& config, int64_t sequence_length);

// What "active size" counts when a target is given.
enum class CountingRule { kNonEmbedding, kWithEmbedding };
template <>
struct EnumNames<CountingRule> {
  static constexpr std::array values = {enum_name(CountingRule::kNonEmbedding, "non_embedding"),
                                        enum_name(CountingRule::kWithEmbedding, "with_embedding")};
};

// The k whose active size is nearest to `target_active` parameters. Throws ConfigError that names the
// reachable range if the target lies outside [k = 0, k = E] by more than half an expert.
int64_t solve_experts_per_layer(const ModelConfig& config, double target_active, CountingRule rule);

// The width of a dense FFN that gives a dense model of the same skeleton (all layers of
// `config`, its D and heads) the active non-embedding size `target_active`.
int64_t solve_dense_ffn_dim(const ModelConfig& config, double target_active);

}  // namespace smoe
