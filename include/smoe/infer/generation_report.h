// Results and statistics of generation for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "smoe/infer/generation.h"

namespace smoe {

// One line: prefill and decode apart, refreshes and the share of experts kept.
std::string describe_stats(const GenerationStats& stats);

// Keys request, text, ids, logprobs (if there are any), finish, stop, stop_id and stats.
nlohmann::json result_to_json(const GenerationResult& result);

}  // namespace smoe
