#include "smoe/model/parameter_report.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "smoe/core/error.h"
#include "smoe/core/progress.h"
#include "smoe/core/table.h"

namespace smoe {
namespace {

constexpr int64_t kBytesBfloat16 = 2;
constexpr int64_t kBytesFloat32 = 4;
constexpr int64_t kLastZeroStage = 2;
constexpr int64_t kBucketsUnderWay = 3;              // of gradients, with zero_stage 2
constexpr double kH200Bytes = 139.0 * 1073741824.0;  // what the driver leaves of 141 GB

// Bytes a parameter needs in one way of training.
struct TrainingPrecision {
  const char* key;
  const char* label;
  int64_t weight_bytes;
  int64_t gradient_bytes;
  int64_t optimizer_bytes;  // two moments, and the float32 masters where the weights are not float32

  constexpr int64_t sum() const { return weight_bytes + gradient_bytes + optimizer_bytes; }
};

constexpr std::array kTrainingPrecisions = {
    TrainingPrecision{"float32", "float32", kBytesFloat32, kBytesFloat32, 2 * kBytesFloat32},
    TrainingPrecision{"bfloat16_with_masters", "bfloat16 + float32 masters", kBytesBfloat16, kBytesFloat32,
                      3 * kBytesFloat32},
};

struct Component {
  const char* key;
  const char* label;
  int64_t parameters;
};

std::vector<Component> list_components(const ParameterCounts& counts) {
  return {{"token_embedding", "token embedding", counts.token_embedding},
          {"output_head", "output head", counts.output_head},
          {"attention", "attention", counts.attention},
          {"dense_ffn", "dense feed-forward", counts.dense_ffn},
          {"shared_experts", "shared experts", counts.shared_experts},
          {"routed_experts", "routed experts", counts.routed_experts},
          {"routers", "mask generator or routers", counts.routers},
          {"size_embedding", "size embedding", counts.size_embedding},
          {"norms", "norms", counts.norms}};
}

std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto position = static_cast<int64_t>(digits.size()) - 3; position > 0; position -= 3) {
    digits.insert(static_cast<size_t>(position), ",");
  }
  return digits;
}

std::string exact_and_short(int64_t value) {
  return fmt::format("{} ({})", grouped(value), format_count(static_cast<double>(value)));
}

std::string component_table(const ParameterCounts& counts) {
  Table table({"component", "parameters", "share"});
  for (const Component& component : list_components(counts)) {
    if (component.parameters > 0) {
      const double share =
          100.0 * static_cast<double>(component.parameters) / static_cast<double>(counts.total);
      table.add_row({component.label, grouped(component.parameters), fmt::format("{:.2f} %", share)});
    }
  }
  table.add_separator();
  table.add_row({"total", exact_and_short(counts.total), "100.00 %"});
  return table.to_terminal();
}

std::string budget_table(const ModelConfig& config, const ParameterCounts& counts) {
  const bool stepped = config.architecture == Architecture::kSteppedMoe;
  Table table({"budget", "k", "active", "with embeddings", stepped ? "loaded/refresh" : "routed"});
  for (const BudgetCounts& budget : counts.budgets) {
    table.add_row({budget.name, std::to_string(budget.experts_per_layer),
                   exact_and_short(budget.active_non_embedding), exact_and_short(budget.active),
                   format_count(static_cast<double>(budget.loaded_per_refresh))});
  }
  return table.to_terminal() +
         fmt::format("active: parameters that every token uses, without token embedding and output head{}\n",
                     stepped ? ", and without the mask generator, which runs once a segment" : "");
}

// The common estimate beside what the operations add up to. A backward pass has the products of two forwards.
std::string compute_table(const ParameterCounts& counts, const ParameterReportOptions& options) {
  const bool has_total = options.train_tokens > 0.0;
  std::vector<std::string> header = {"GFLOPs a token", "forward", "backward", "training", "6 N"};
  if (has_total) header.insert(header.end(), {"whole training", "6 N T"});
  Table table(header);
  for (const BudgetCounts& budget : counts.budgets) {
    const double forward = budget.forward_flops_per_token;
    const double estimate = 6.0 * static_cast<double>(budget.active_non_embedding);
    std::vector<std::string> row = {budget.name};
    for (const double flops : {forward, 2.0 * forward, 3.0 * forward, estimate}) {
      row.push_back(fmt::format("{:.4g}", flops * 1e-9));
    }
    if (has_total) {
      for (const double flops : {3.0 * forward, estimate})
        row.push_back(fmt::format("{:.4g}", flops * options.train_tokens));
    }
    table.add_row(row);
  }
  return table.to_terminal() +
         fmt::format(
             "exact counts at {} tokens a sequence, with attention scores and output head; N is the "
             "active size{}\n",
             options.sequence_length,
             has_total ? fmt::format("; training on {} tokens", format_count(options.train_tokens)) : "");
}

std::string memory_table(const ParameterCounts& counts) {
  Table table({"training state", "weights", "gradients", "optimizer", "sum"});
  for (const TrainingPrecision& precision : kTrainingPrecisions) {
    const auto bytes = [&](int64_t each) {
      return format_bytes(static_cast<double>(counts.total) * static_cast<double>(each));
    };
    table.add_row({precision.label, bytes(precision.weight_bytes), bytes(precision.gradient_bytes),
                   bytes(precision.optimizer_bytes), bytes(precision.sum())});
  }
  return table.to_terminal() + "without activations\n";
}

// Parameters of the largest tensor, which is never split over gradient buckets.
int64_t largest_tensor(const ModelConfig& config) {
  const int64_t experts =
      config.architecture == Architecture::kDense ? 0 : config.num_experts * config.expert_dim * config.dim;
  return std::max({experts, config.vocab_size * config.dim, config.dense_ffn_dim * config.dim});
}

ProcessState state_of_process(const ModelConfig& config, const ParameterCounts& counts,
                              const TrainingPrecision& precision, int64_t stage, int64_t num_shards) {
  const double total = static_cast<double>(counts.total);
  const double share = total / static_cast<double>(num_shards);
  // Stage 1 has its summed shard beside the whole gradients; stage 2 holds whole buckets only while they
  // travel.
  const double under_way = std::min(total, static_cast<double>(kBucketsUnderWay * largest_tensor(config)));
  const std::array<double, 3> gradients = {total, total + share, share + under_way};
  return {total * static_cast<double>(precision.weight_bytes),
          gradients[static_cast<size_t>(stage)] * static_cast<double>(precision.gradient_bytes),
          (stage == 0 ? total : share) * static_cast<double>(precision.optimizer_bytes)};
}

std::string process_table(const ModelConfig& config, const ParameterCounts& counts, int64_t world_size) {
  Table table({fmt::format("a process of {}", world_size), "zero_stage", "weights", "gradients", "optimizer",
               "sum", "left on an H200"});
  for (const TrainingPrecision& precision : kTrainingPrecisions) {
    for (int64_t stage = 0; stage <= kLastZeroStage; ++stage) {
      const ProcessState state = state_of_process(config, counts, precision, stage, world_size);
      table.add_row({precision.label, std::to_string(stage), format_bytes(state.weights),
                     format_bytes(state.gradients), format_bytes(state.optimizer), format_bytes(state.sum()),
                     state.sum() < kH200Bytes ? format_bytes(kH200Bytes - state.sum()) : "does not fit"});
    }
  }
  return table.to_terminal() +
         fmt::format(
             "one shard group of {} processes; what is left holds activations, the largest chunk of "
             "logits and NCCL's buffers\n",
             world_size);
}

bool is_dense(const ModelConfig& config) { return config.architecture == Architecture::kDense; }

// The config changed so that its only active size is the solved one.
ModelConfig apply_solution(ModelConfig config, int64_t solution) {
  if (is_dense(config)) {
    config.dense_ffn_dim = solution;
  } else {
    config.budgets = {{"solved", solution}};
  }
  return config;
}

struct Solution {
  double target = 0.0;
  int64_t value = 0;   // k, or the FFN width of a dense model
  int64_t active = 0;  // under the counting rule
};

std::vector<Solution> solve_targets(const ModelConfig& config, const ParameterReportOptions& options) {
  SMOE_CHECK(
      ConfigError,
      !is_dense(config) || options.targets.empty() || options.counting == CountingRule::kNonEmbedding,
      "--counting with_embedding does not apply to a dense model: its width is solved without embeddings");
  std::vector<Solution> solutions;
  for (const double target : options.targets) {
    Solution solution;
    solution.target = target;
    solution.value = is_dense(config) ? solve_dense_ffn_dim(config, target)
                                      : solve_experts_per_layer(config, target, options.counting);
    const BudgetCounts counts =
        count_parameters(apply_solution(config, solution.value), options.sequence_length).budgets.front();
    solution.active =
        options.counting == CountingRule::kNonEmbedding ? counts.active_non_embedding : counts.active;
    solutions.push_back(solution);
  }
  return solutions;
}

std::string solution_table(const ModelConfig& config, const ParameterReportOptions& options) {
  Table table({"target", is_dense(config) ? "dense_ffn_dim" : "experts_per_layer",
               options.counting == CountingRule::kNonEmbedding ? "active" : "active with embeddings"});
  for (const Solution& solution : solve_targets(config, options)) {
    table.add_row(
        {format_count(solution.target), std::to_string(solution.value), exact_and_short(solution.active)});
  }
  return table.to_terminal();
}

nlohmann::ordered_json budget_json(const BudgetCounts& budget, double train_tokens) {
  const double forward = budget.forward_flops_per_token;
  const double estimate = 6.0 * static_cast<double>(budget.active_non_embedding);
  nlohmann::ordered_json json = {{"name", budget.name},
                                 {"experts_per_layer", budget.experts_per_layer},
                                 {"active_non_embedding", budget.active_non_embedding},
                                 {"active", budget.active},
                                 {"loaded_per_refresh", budget.loaded_per_refresh},
                                 {"forward_flops_per_token", forward},
                                 {"training_flops_per_token", 3.0 * forward},
                                 {"training_flops_per_token_6n", estimate}};
  if (train_tokens > 0.0) {
    json["training_flops"] = 3.0 * forward * train_tokens;
    json["training_flops_6nt"] = estimate * train_tokens;
  }
  return json;
}

nlohmann::ordered_json memory_json(const ParameterCounts& counts) {
  nlohmann::ordered_json memory;
  for (const TrainingPrecision& precision : kTrainingPrecisions) {
    memory[precision.key] = {{"weights", counts.total * precision.weight_bytes},
                             {"gradients", counts.total * precision.gradient_bytes},
                             {"optimizer", counts.total * precision.optimizer_bytes}};
  }
  return memory;
}

}  // namespace

ProcessState process_state(const ModelConfig& config, bool is_bfloat16, int64_t zero_stage,
                           int64_t num_shards) {
  // The length matters for FLOPs only.
  return state_of_process(config, count_parameters(config, /*sequence_length=*/1),
                          is_bfloat16 ? kTrainingPrecisions.back() : kTrainingPrecisions.front(), zero_stage,
                          num_shards);
}

int64_t float32_training_bytes() { return kTrainingPrecisions.front().sum(); }
int64_t bfloat16_training_bytes() { return kTrainingPrecisions.back().sum(); }

std::string parameter_report_text(const ModelConfig& config, const ParameterReportOptions& options) {
  const ParameterCounts counts = count_parameters(config, options.sequence_length);
  std::string text = fmt::format("{}: {}, {} dense + {} MoE layers, width {}\n\n", options.title,
                                 enum_to_name(config.architecture), config.num_dense_layers,
                                 config.num_moe_layers, config.dim);
  text += component_table(counts) + "\n" + budget_table(config, counts) + "\n";
  text += compute_table(counts, options) + "\n";
  text += memory_table(counts);
  if (options.world_size > 1) text += "\n" + process_table(config, counts, options.world_size);
  text += fmt::format("\nKV cache: {} values a token, {} in bfloat16\n",
                      grouped(counts.kv_cache_values_per_token),
                      format_bytes(static_cast<double>(counts.kv_cache_values_per_token * kBytesBfloat16)));
  if (!options.targets.empty()) {
    text += "\n" + solution_table(config, options);
  }
  return text;
}

std::string parameter_report_json(const ModelConfig& config, const ParameterReportOptions& options) {
  const ParameterCounts counts = count_parameters(config, options.sequence_length);
  nlohmann::ordered_json report;
  report["architecture"] = enum_to_name(config.architecture);
  report["total"] = counts.total;
  for (const Component& component : list_components(counts)) {
    report["components"][component.key] = component.parameters;
  }
  report["sequence_length"] = options.sequence_length;
  report["budgets"] = nlohmann::ordered_json::array();
  for (const BudgetCounts& budget : counts.budgets) {
    report["budgets"].push_back(budget_json(budget, options.train_tokens));
  }
  report["kv_cache_values_per_token"] = counts.kv_cache_values_per_token;
  report["kv_cache_bytes_per_token_bfloat16"] = counts.kv_cache_values_per_token * kBytesBfloat16;
  report["training_bytes"] = memory_json(counts);
  report["world_size"] = options.world_size;
  for (int64_t stage = 0; options.world_size > 1 && stage <= kLastZeroStage; ++stage) {
    for (const TrainingPrecision& precision : kTrainingPrecisions) {
      const ProcessState state = state_of_process(config, counts, precision, stage, options.world_size);
      report["process_bytes"][fmt::format("zero_stage_{}", stage)][precision.key] = {
          {"weights", state.weights}, {"gradients", state.gradients}, {"optimizer", state.optimizer}};
    }
  }
  if (!options.targets.empty()) {
    report["counting"] = enum_to_name(options.counting);
  }
  for (const Solution& solution : solve_targets(config, options)) {
    report["solved"].push_back({{"target", solution.target},
                                {is_dense(config) ? "dense_ffn_dim" : "experts_per_layer", solution.value},
                                {"active", solution.active}});
  }
  return report.dump(2) + "\n";
}

double parse_count(std::string_view text) {
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  constexpr std::array<std::pair<char, double>, 4> kUnits = {
      {{'k', 1e3}, {'m', 1e6}, {'b', 1e9}, {'t', 1e12}}};
  bool known_suffix = suffix.empty();
  for (const auto& [letter, factor] : kUnits) {
    if (suffix.size() == 1 && std::tolower(static_cast<unsigned char>(suffix[0])) == letter) {
      value *= factor;
      known_suffix = true;
    }
  }
  SMOE_CHECK(ConfigError, error == std::errc() && known_suffix && std::isfinite(value) && value > 0.0,
             "\"{}\" is not a count; write a positive number, with k, M, B or T if you like: 3B, 700M, 2.5e9",
             text);
  return value;
}

}  // namespace smoe
