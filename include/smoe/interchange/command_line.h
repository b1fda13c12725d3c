// Words of the command line that smoe-export and smoe-import share.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "smoe/interchange/huggingface.h"

namespace smoe {

inline constexpr const char* kDtypeHelp = "type of all weights: stored (as they are), bf16 or fp32";
inline constexpr const char* kShardSizeHelp =
    "largest weight file, for example 500MB, 5GB or 4GiB; 0: one file whatever its size";

// nullopt for `stored`. Throws ConfigError for other words than those of kDtypeHelp.
std::optional<at::ScalarType> parse_dtype(const std::string& text);

// Bytes of "5GB" (decimal), "4GiB" (binary), "1000" (bytes). Throws ConfigError.
uint64_t parse_shard_size(const std::string& text);

// What was written, as lines for the user; notes begin with "note: ".
std::string describe_summary(const std::filesystem::path& out, const InterchangeSummary& summary);

}  // namespace smoe
