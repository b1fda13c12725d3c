// Config of the three architectures. One struct serves all: a dense model has no MoE layers, and a
// vanilla MoE has a router in each MoE layer instead of the mask generator.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "smoe/core/config.h"
#include "smoe/routing/budgets.h"
#include "smoe/routing/routing_config.h"

namespace smoe {

enum class Architecture {
  kDense,       // a plain decoder
  kSteppedMoe,  // segment routing for all MoE layers at once (static with one budget, flexible with several)
  kVanillaMoe,  // per-token, per-layer routing
};
template <>
struct EnumNames<Architecture> {
  static constexpr std::array values = {enum_name(Architecture::kDense, "dense"),
                                        enum_name(Architecture::kSteppedMoe, "stepped_moe"),
                                        enum_name(Architecture::kVanillaMoe, "vanilla_moe")};
};

// Where the learned vector of the active budget is added.
enum class SizeEmbedding {
  kInput,       // to the token embeddings, before the dense layers (the paper)
  kRouterOnly,  // to the mask generator's input only; the dense layers can then be shared over budgets
  kNone,
};
template <>
struct EnumNames<SizeEmbedding> {
  static constexpr std::array values = {enum_name(SizeEmbedding::kInput, "input"),
                                        enum_name(SizeEmbedding::kRouterOnly, "router_only"),
                                        enum_name(SizeEmbedding::kNone, "none")};
};

// Per-token router of the vanilla MoE.
struct TokenRouterConfig {
  bool normalize_weights = true;
  double load_balance_weight = 0.01;
  double z_loss_weight = 0.001;
};
template <class Visitor>
void visit_fields(Visitor& visitor, TokenRouterConfig& config) {
  visitor.field("normalize_weights", config.normalize_weights,
                "divide the weights of the chosen experts by their sum");
  visitor.field("load_balance_weight", config.load_balance_weight,
                "weight of E * sum_e share_e * mean probability_e over the global batch", at_least(0.0));
  visitor.field("z_loss_weight", config.z_loss_weight, "weight of mean(logsumexp(router logits)^2)",
                at_least(0.0));
}

struct ModelConfig {
  Architecture architecture = Architecture::kSteppedMoe;
  int64_t vocab_size = 4096;
  int64_t dim = 256;
  int64_t num_heads = 4;
  int64_t num_kv_heads = 4;
  int64_t head_dim = 64;
  int64_t num_dense_layers = 2;
  int64_t dense_ffn_dim = 512;
  int64_t num_moe_layers = 6;
  int64_t num_experts = 32;
  int64_t expert_dim = 64;
  int64_t num_shared_experts = 1;
  std::vector<BudgetConfig> budgets = {{"small", 4}, {"large", 8}};
  SizeEmbedding size_embedding = SizeEmbedding::kInput;
  bool tied_embeddings = true;
  bool qk_norm = true;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  RoutingConfig routing;
  TokenRouterConfig token_router;
  double router_init_scale = 1.0;
  double residual_init_scale = 1.0;

  int64_t num_layers() const { return num_dense_layers + num_moe_layers; }
  int64_t shared_dim() const { return num_shared_experts * expert_dim; }
};
template <class Visitor>
void visit_fields(Visitor& visitor, ModelConfig& config) {
  visitor.field("architecture", config.architecture, "dense, stepped_moe or vanilla_moe");
  visitor.field("vocab_size", config.vocab_size, "V: tokens in the vocabulary", at_least(1));
  visitor.field("dim", config.dim, "D: width of the residual stream", at_least(1));
  visitor.field("num_heads", config.num_heads, "query heads", at_least(1));
  visitor.field("num_kv_heads", config.num_kv_heads, "key and value heads; divides num_heads", at_least(1));
  visitor.field("head_dim", config.head_dim, "width of a head; even", at_least(2));
  visitor.field("num_dense_layers", config.num_dense_layers, "dense layers, which also route", at_least(0));
  visitor.field("dense_ffn_dim", config.dense_ffn_dim, "hidden width of a dense layer's SwiGLU", at_least(1));
  visitor.field("num_moe_layers", config.num_moe_layers, "L: MoE layers; 0 for a dense model", at_least(0));
  visitor.field("num_experts", config.num_experts, "E: routed experts a MoE layer", at_least(1));
  visitor.field("expert_dim", config.expert_dim, "h: hidden width of one expert", at_least(1));
  visitor.field("num_shared_experts", config.num_shared_experts,
                "s: always-on experts a layer, as one of width s*h", at_least(0));
  visitor.field("budgets", config.budgets, "active sizes, ascending in experts_per_layer");
  visitor.field("size_embedding", config.size_embedding, "where the model is told its budget");
  visitor.field("tied_embeddings", config.tied_embeddings, "output head shares the token embedding");
  visitor.field("qk_norm", config.qk_norm, "RMSNorm on each query and key head");
  visitor.field("rope_theta", config.rope_theta, "base of the rotary position embedding", positive());
  visitor.field("norm_eps", config.norm_eps, "epsilon of RMSNorm", positive());
  visitor.field("routing", config.routing, "segment routing (stepped_moe)");
  visitor.field("token_router", config.token_router, "per-token routing (vanilla_moe)");
  visitor.field(
      "router_init_scale", config.router_init_scale,
      "factor on the 1/sqrt(D) standard deviation of the router's or mask generator's initial weights",
      at_least(0.0));
  visitor.field(
      "residual_init_scale", config.residual_init_scale,
      "factor on the initial weights that write into the residual stream (o_proj, down_proj), whose "
      "standard deviation is 1/sqrt(2 * layers * active fan-in); the active fan-in of an expert sum is "
      "(s + largest k) * h",
      positive());
}

// Cross-field rules: divisibility, budgets ascending and at most E, architectures with and without MoE
// layers.
void validate(const ModelConfig& config, ConfigProblems& problems);

// Reads the model from a config of a whole run (its `model` section; the other sections are not looked at) or
// from a file of model keys alone. Overrides are spelled as in the file: model.dim=512 or dim=512. Throws
// ConfigError listing every problem found.
ModelConfig read_model_config(const ConfigSource& source);

}  // namespace smoe
