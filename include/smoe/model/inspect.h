// What smoe-inspect shows of a checkpoint: its contents, and its logits for given tokens so that other
// implementations can be compared with ours.
//
// Shape legend: B rows, T tokens, V vocabulary, Q segments, L MoE layers, E experts.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "smoe/model/model.h"

namespace smoe {

// Token ids [B, T] int64 from a JSON file: a list of lists of equal length with ids in [0, vocab_size).
// Throws DataError naming the file, the row and the position.
at::Tensor read_token_rows(const std::filesystem::path& path, int64_t vocab_size);

struct LogitsRequest {
  at::Tensor tokens_BT;
  std::string budget;                     // name or k; may be empty for a dense model only
  std::optional<int64_t> segment_length;  // default: the config's
};

struct LogitsResult {
  at::Tensor logits_BTV;  // float32
  at::Tensor
      routing_QLE;  // uint8, 0 or 1, segments ordered by row and position; undefined unless stepped_moe
};

// Runs the rows one at a time, so that memory beyond the result does not grow with B. Segments start at
// position 0 of each row and are routed by their first token. Throws ConfigError for a budget or segment
// length that does not apply.
LogitsResult compute_logits(const Model& model, const LogitsRequest& request);

// Verifies the checksums, then lists step, config hash, files and tensors as text.
std::string describe_checkpoint(const std::filesystem::path& path);

}  // namespace smoe
