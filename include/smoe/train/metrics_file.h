// Reads metrics.jsonl, which a run in progress may be writing to.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace smoe {

// The lines as JSON objects with `kind`. A last line that is half-written is left out. Empty if there is no
// file. Throws DataError naming the line for anything else.
std::vector<nlohmann::ordered_json> read_metrics(const std::filesystem::path& path);

// Of a line of kind `validation`: the mean over its sources of the loss in nats a token, by budget, in the
// order of the line.
std::vector<std::pair<std::string, double>> mean_validation_losses(const nlohmann::ordered_json& line);

}  // namespace smoe
