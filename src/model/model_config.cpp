#include "smoe/model/model_config.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

namespace smoe {
namespace {

// Far above any model, far below what 64-bit counts hold.
constexpr double kMaxParameters = 1e15;

std::string budget_key(size_t index, const char* field) { return fmt::format("budgets.{}.{}", index, field); }

void check_attention(const ModelConfig& config, ConfigProblems& problems) {
  if (config.num_heads % config.num_kv_heads != 0) {
    problems.add_rule(
        "num_kv_heads", "num_heads",
        fmt::format("{} key and value heads do not divide {} query heads; every key head serves the same "
                    "number of query heads",
                    config.num_kv_heads, config.num_heads));
  }
  if (config.head_dim % 2 != 0) {
    problems.add_rule("head_dim",
                      fmt::format("{} is odd; rotary positions turn pairs of channels, so use an even width",
                                  config.head_dim));
  }
}

void check_layers(const ModelConfig& config, ConfigProblems& problems) {
  const std::string_view architecture = enum_to_name(config.architecture);
  if (config.architecture == Architecture::kDense) {
    if (config.num_moe_layers != 0) {
      problems.add_rule(
          "num_moe_layers", "architecture",
          fmt::format("a dense model has no MoE layers, found {}; set num_moe_layers to 0 and count all "
                      "layers in num_dense_layers",
                      config.num_moe_layers));
    } else if (config.num_dense_layers < 1) {
      problems.add_rule("num_dense_layers", "architecture",
                        "a dense model needs at least 1 dense layer, found 0");
    }
  } else if (config.num_moe_layers < 1) {
    problems.add_rule(
        "num_moe_layers", "architecture",
        fmt::format("architecture {} needs at least 1 MoE layer, found 0; set num_moe_layers, or use "
                    "architecture dense",
                    architecture));
  }
}

// A budget may be chosen by its name or by its k, so a name that is a number must be its own k.
void check_budget_name(const ModelConfig& config, size_t index, std::set<std::string>& seen,
                       ConfigProblems& problems) {
  const BudgetConfig& budget = config.budgets[index];
  const std::string key = budget_key(index, "name");
  if (budget.name.empty()) {
    problems.add_rule(key, "the name is empty; give each budget a name, for example 1B");
    return;
  }
  if (!seen.insert(budget.name).second) {
    problems.add_rule(key,
                      fmt::format("\"{}\" is the name of an earlier budget; names must differ", budget.name));
  }
  const bool is_number = std::all_of(budget.name.begin(), budget.name.end(),
                                     [](unsigned char character) { return std::isdigit(character) != 0; });
  if (is_number && budget.name != std::to_string(budget.experts_per_layer)) {
    problems.add_rule(
        key, budget_key(index, "experts_per_layer"),
        fmt::format("the name \"{}\" reads as a number of experts, but the budget has {}; budgets can be "
                    "chosen by name or by number, so use another name",
                    budget.name, budget.experts_per_layer));
  }
}

void check_budget_size(const ModelConfig& config, size_t index, ConfigProblems& problems) {
  const int64_t experts = config.budgets[index].experts_per_layer;
  const std::string key = budget_key(index, "experts_per_layer");
  if (experts > config.num_experts) {
    problems.add_rule(key, "num_experts",
                      fmt::format("{} experts a layer, but there are only {}", experts, config.num_experts));
  }
  if (index > 0 && experts <= config.budgets[index - 1].experts_per_layer) {
    problems.add_rule(
        key, budget_key(index - 1, "experts_per_layer"),
        fmt::format("{} does not exceed the {} of the budget before it; list budgets from small to large",
                    experts, config.budgets[index - 1].experts_per_layer));
  }
  if (config.architecture == Architecture::kVanillaMoe && experts < 1) {
    problems.add_rule(
        key, "architecture",
        "a vanilla_moe routes each token to at least 1 expert, found 0; only a stepped_moe can run on its "
        "shared experts alone");
  }
}

void check_budgets(const ModelConfig& config, ConfigProblems& problems) {
  if (config.budgets.empty()) {
    problems.add_rule("budgets", "architecture",
                      fmt::format("architecture {} needs at least 1 budget, for example "
                                  "[{{name: small, experts_per_layer: 4}}]",
                                  enum_to_name(config.architecture)));
  }
  std::set<std::string> seen;
  for (size_t index = 0; index < config.budgets.size(); ++index) {
    check_budget_name(config, index, seen, problems);
    check_budget_size(config, index, problems);
  }
}

// Settings of the learned masks that a control without logits would silently ignore.
void check_mask_source(const ModelConfig& config, ConfigProblems& problems) {
  const RoutingConfig& routing = config.routing;
  const bool without_logits =
      routing.mask_source == MaskSource::kRandom || routing.mask_source == MaskSource::kPrefix;
  const std::string_view source = enum_to_name(routing.mask_source);
  if (without_logits && routing.balance.kind != BalanceKind::kNone) {
    problems.add_rule(
        "routing.balance.kind", "routing.mask_source",
        fmt::format("mask source {} has no logits to balance; set balance.kind to none", source));
  }
  if (without_logits && routing.selection_noise > 0.0) {
    problems.add_rule(
        "routing.selection_noise", "routing.mask_source",
        fmt::format("mask source {} has no logits to add noise to; set selection_noise to 0", source));
  }
  if (routing.mask_source != MaskSource::kLearned && routing.random_mask_fraction > 0.0) {
    problems.add_rule(
        "routing.random_mask_fraction", "routing.mask_source",
        fmt::format("random-to-learned needs mask source learned, found {}; set random_mask_fraction to 0",
                    source));
  }
}

// Controls choose without looking at any token.
void check_selector(const ModelConfig& config, ConfigProblems& problems) {
  const RoutingConfig& routing = config.routing;
  if (routing.mask_source != MaskSource::kLearned && routing.selector_position != SelectorPosition::kFirst) {
    problems.add_rule(
        "routing.selector_position", "routing.mask_source",
        fmt::format("mask source {} looks at no token, so {} would change nothing; leave it at "
                    "first",
                    enum_to_name(routing.mask_source), enum_to_name(routing.selector_position)));
  }
}

double estimated_parameters(const ModelConfig& config) {
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const double attention = 2.0 * (real(config.num_heads) + real(config.num_kv_heads)) * real(config.head_dim);
  const double experts =
      (real(config.num_experts) + real(config.num_shared_experts)) * real(config.expert_dim);
  const double columns = 2.0 * real(config.vocab_size) +
                         (real(config.num_dense_layers) + real(config.num_moe_layers)) * attention +
                         3.0 * real(config.num_dense_layers) * real(config.dense_ffn_dim) +
                         real(config.num_moe_layers) * (3.0 * experts + real(config.num_experts));
  const bool has_hidden = config.routing.mask_head.kind == MaskHeadKind::kMlp;
  const double hidden = has_hidden ? real(config.routing.mask_head.hidden_dim) : 0.0;
  return columns * real(config.dim) +
         hidden * (real(config.dim) + real(config.num_moe_layers) * real(config.num_experts));
}

}  // namespace

void validate(const ModelConfig& config, ConfigProblems& problems) {
  check_attention(config, problems);
  check_layers(config, problems);
  if (config.architecture != Architecture::kDense) {
    check_budgets(config, problems);
  }
  if (config.architecture == Architecture::kSteppedMoe) {
    check_mask_source(config, problems);
    check_selector(config, problems);
  }
  const double parameters = estimated_parameters(config);
  if (parameters > kMaxParameters) {
    problems.add_rule("dim", fmt::format("the sizes make a model of {:.1e} parameters; the limit is {:.0e}",
                                         parameters, kMaxParameters));
  }
}

ModelConfig read_model_config(const ConfigSource& source) {
  ConfigProblems problems;
  const ConfigNode root = load_config_tree(source, problems);
  const ConfigNode* section = root.find("model");
  ModelConfig config;
  detail::read_struct(section != nullptr ? *section : root, section != nullptr ? "model" : "", config,
                      problems);
  problems.throw_if_any(source.file.string());
  return config;
}

}  // namespace smoe
