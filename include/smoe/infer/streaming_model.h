// A model that runs from a streaming package: its resident part in memory, its routed experts read as they
// are needed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "smoe/infer/expert_store.h"
#include "smoe/infer/generation_session.h"
#include "smoe/model/model.h"

namespace smoe {

struct StreamingOptions {
  std::filesystem::path package;
  int64_t memory_limit = 0;  // bytes for routed experts; the resident part comes on top
  ExpertStoreConfig store;
};

struct StreamingModel {
  Model model;  // has the store as its provider
  std::shared_ptr<ExpertStore> experts;
};

// Opens a package for evaluation on the CPU in float32. Files other than the experts are verified now,
// experts as they are read. Throws CheckpointError and ConfigError as StreamingPackage and slots_for_memory
// do.
StreamingModel open_streaming_model(const StreamingOptions& options);

// No more rows of a Stepped MoE together than there are slots for their choices: beyond that, every token
// would read again what a choice of another row has pushed out.
void fit_to_slots(const ExpertStore& experts, const ModelConfig& config, SessionLimits& limits);

// "512MiB", "1.5GiB", "300MB", "4096": a positive number of bytes. Throws ConfigError for anything else.
int64_t parse_byte_count(std::string_view text);

// Counters as lines for people; `num_tokens` decoded tokens share the bytes and the stalls.
std::string streaming_report(const ExpertStore& store, int64_t num_tokens);

}  // namespace smoe
