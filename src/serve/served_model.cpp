#include "smoe/serve/served_model.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/infer/streaming_model.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/device.h"
#include "smoe/routing/budgets.h"
#include "smoe/serve/api_error.h"

namespace smoe {
namespace {

struct OpenedModel {
  std::filesystem::path folder;  // has config, tokenizer and template
  Model model;
  std::shared_ptr<ExpertStore> experts;
};

OpenedModel open_model(const ModelSource& source) {
  SMOE_CHECK(ConfigError, source.checkpoint.empty() != source.package.empty(),
             "give either a checkpoint or a streaming package, not {}",
             source.checkpoint.empty() ? "neither" : "both");
  if (source.package.empty()) {
    const std::filesystem::path folder = resolve_checkpoint(source.checkpoint);
    return {folder, load_model(folder, resolve_device(source.device)), nullptr};
  }
  SMOE_CHECK(ConfigError, source.device == "cpu", "device {}: streamed experts run on the cpu only",
             source.device);
  StreamingModel streaming = open_streaming_model({source.package, source.memory_limit, source.store});
  return {source.package, std::move(streaming.model), std::move(streaming.experts)};
}

std::shared_ptr<const ChatRenderer> make_renderer(const ModelSource& source,
                                                  const std::filesystem::path& folder,
                                                  const Tokenizer& tokenizer) {
  if (!source.chat_template.empty()) {
    return std::make_shared<ChatRenderer>(load_chat_template(source.chat_template), tokenizer);
  }
  if (!std::filesystem::exists(folder / kChatTemplateFile)) return nullptr;
  return std::make_shared<ChatRenderer>(checkpoint_chat_template(folder), tokenizer);
}

int64_t default_budget(const ModelSource& source, const ModelConfig& config) {
  if (config.architecture == Architecture::kDense) {
    SMOE_CHECK(ConfigError, source.default_budget.empty(),
               "--budget {}: a dense model has one size; leave the option out", source.default_budget);
    return 0;
  }
  if (!source.default_budget.empty()) return find_budget(config.budgets, source.default_budget);
  const auto largest = std::ranges::max_element(config.budgets, {}, &BudgetConfig::experts_per_layer);
  return largest - config.budgets.begin();
}

}  // namespace

ServedModel open_served_model(const ModelSource& source) {
  OpenedModel opened = open_model(source);
  const ModelConfig config = opened.model.config();
  if (source.weights != ExpertEncoding::kFloat32) {
    SMOE_CHECK(ConfigError, opened.model.device().is_cpu(), "weights {}: for device cpu only, found {}",
               enum_to_name(source.weights), source.device);
    opened.model.encode_weights(source.weights);
  }
  ServedModel served{.name = source.name.empty() ? "smoe" : source.name,
                     .model = std::move(opened.model),
                     .tokenizer = load_tokenizer(checkpoint_tokenizer(opened.folder)),
                     .renderer = nullptr,
                     .experts = std::move(opened.experts),
                     .bos = parse_bos_policy(source.bos),
                     .default_budget = default_budget(source, config),
                     .segment_length = source.segment_length.value_or(config.routing.segment_length),
                     .session = {}};
  served.renderer = make_renderer(source, opened.folder, *served.tokenizer);
  const std::optional<int64_t> limit =
      source.context_limit ? source.context_limit : checkpoint_sequence_length(opened.folder);
  SMOE_CHECK(ConfigError, limit.has_value(),
             "{}: the config has no data.sequence_length, so that the most tokens of prompt and answer are "
             "unknown; give --context-limit",
             opened.folder.string());
  served.context_limit = *limit;
  served.session.max_rows = source.max_rows;
  if (served.experts) fit_to_slots(*served.experts, config, served.session);
  return served;
}

ModelCatalog::ModelCatalog(const std::string& name, const ModelConfig& config, int64_t default_budget) {
  entries_.push_back({name, default_budget});
  if (config.architecture == Architecture::kDense) return;
  for (const BudgetConfig& budget : config.budgets) {
    entries_.push_back({fmt::format("{}-{}", name, budget.name), std::ssize(entries_) - 1});
    budget_names_.push_back(budget.name);
  }
}

const ModelCatalog::Entry& ModelCatalog::find(std::string_view id) const {
  if (const auto found = std::ranges::find(entries_, id, &Entry::id); found != entries_.end()) return *found;
  for (size_t i = 0; i < budget_names_.size(); ++i) {
    if (budget_names_[i] == id) return entries_[i + 1];
  }
  std::vector<std::string> ids;
  for (const Entry& entry : entries_) ids.push_back(entry.id);
  throw ApiError(404, "model_not_found",
                 fmt::format("the model `{}` does not exist; there are: {}", id, fmt::join(ids, ", ")),
                 "model");
}

}  // namespace smoe
