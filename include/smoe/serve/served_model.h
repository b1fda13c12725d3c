// A model with everything that answering needs, and the names under which requests choose its budgets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/data/bos_policy.h"
#include "smoe/data/chat_renderer.h"
#include "smoe/data/tokenizer.h"
#include "smoe/infer/expert_store.h"
#include "smoe/infer/generation_session.h"
#include "smoe/model/model.h"

namespace smoe {

struct ServedModel {
  std::string name;
  Model model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<const ChatRenderer> renderer;  // null: no chat template, so that chats are refused
  std::shared_ptr<ExpertStore> experts;          // null: all experts are in memory
  BosPolicy bos = BosPolicy::kAuto;
  int64_t default_budget = 0;    // index
  int64_t segment_length = 32;   // where a request names none
  int64_t context_limit = 2048;  // most tokens of prompt and answer together
  SessionLimits session;
};

struct ModelSource {
  std::filesystem::path checkpoint;  // a checkpoint or run folder; or
  std::filesystem::path package;     // a streaming package, with
  int64_t memory_limit = 0;          // bytes for its routed experts
  ExpertStoreConfig store;
  std::string device = "cpu";
  ExpertEncoding weights = ExpertEncoding::kFloat32;  // of everything in memory: Model::encode_weights
  std::string name;                                   // empty: smoe
  std::string default_budget;                         // name or k; empty: the largest
  std::filesystem::path chat_template;                // empty: that of the checkpoint, if it has one
  std::string bos = "auto";
  std::optional<int64_t> segment_length;  // default: as trained
  std::optional<int64_t> context_limit;   // default: data.sequence_length of the checkpoint
  int64_t max_rows = 32;
};

// Throws ConfigError or CheckpointError, also for a model whose context limit is unknown.
ServedModel open_served_model(const ModelSource& source);

// The values of the field `model` of a request.
class ModelCatalog {
 public:
  struct Entry {
    std::string id;
    int64_t budget = 0;
  };

  // `<name>` for the default budget, then `<name>-<budget>` for each one. A dense model has no budgets.
  ModelCatalog(const std::string& name, const ModelConfig& config, int64_t default_budget);

  const std::vector<Entry>& entries() const { return entries_; }
  // By id, or by the plain name of a budget. Throws ApiError (404) that lists the ids.
  const Entry& find(std::string_view id) const;

 private:
  std::vector<Entry> entries_;
  std::vector<std::string> budget_names_;  // of entries_[i + 1]
};

}  // namespace smoe
