// Scores of judged benchmarks as JSON and as tables (internal to the judged benchmarks).
#pragma once

#include <nlohmann/json.hpp>

#include "smoe/core/table.h"
#include "smoe/eval/alpaca_eval.h"
#include "smoe/eval/arena_hard.h"

namespace smoe {

nlohmann::ordered_json scores_json(const AlpacaScores& scores);
nlohmann::ordered_json scores_json(const ArenaScores& scores);
nlohmann::ordered_json usage_json(const JudgeUsage& usage);

Table scores_table(const AlpacaScores& scores);
Table scores_table(const ArenaScores& scores);

// What the reader of the table must know: which formula, how many invalid judgements, what it cost.
std::string score_notes(const AlpacaScores& scores);
std::string score_notes(const ArenaScores& scores);
std::string usage_note(const JudgeUsage& usage);

}  // namespace smoe
