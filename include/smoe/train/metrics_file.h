// Reads metrics.jsonl, which a run in progress may be writing to.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

namespace smoe {

// The lines as JSON objects with `kind`. A last line that is half-written is left out. Empty if there is no
// file. Throws DataError naming the line for anything else.
std::vector<nlohmann::ordered_json> read_metrics(const std::filesystem::path& path);

}  // namespace smoe
