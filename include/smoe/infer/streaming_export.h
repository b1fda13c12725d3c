// Writes streaming packages (streaming_package.h) from checkpoints and from models in memory.
#pragma once

#include <cstdint>
#include <filesystem>

#include "smoe/model/expert_provider.h"
#include "smoe/model/model.h"

namespace smoe {

struct ExportSummary {
  int64_t num_experts = 0;  // over all layers
  int64_t block_bytes = 0;
  int64_t experts_bytes = 0;
  int64_t resident_bytes = 0;
};

// Verifies the checkpoint first. `out` must not exist; it appears complete or not at all. Throws
// CheckpointError, for a model without routed experts too.
ExportSummary export_streaming_package(const std::filesystem::path& checkpoint,
                                       const std::filesystem::path& out, ExpertEncoding encoding);

// The same from a model in memory (float32 on the CPU), without a tokenizer.
ExportSummary export_streaming_package(const Model& model, const std::filesystem::path& out,
                                       ExpertEncoding encoding);

}  // namespace smoe
