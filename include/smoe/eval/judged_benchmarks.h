// A whole judged benchmark: files in, judgements by an endpoint or from a file, scores and files out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "smoe/eval/alpaca_eval.h"
#include "smoe/eval/arena_hard.h"
#include "smoe/eval/judge_client.h"

namespace smoe {

struct JudgedBenchmarkOptions {
  std::filesystem::path outputs;     // answers of the model, in the benchmark's format
  std::filesystem::path data;        // folder with alpaca_eval/ and arena_hard/
  std::filesystem::path judgements;  // annotations or judgements to score; empty: ask the endpoint
  std::filesystem::path out;         // folder for results, created; holds the log that a killed run continues
  std::filesystem::path baseline;    // answers compared with; empty: the benchmark's
  std::filesystem::path judge_prompt;  // settings of the judge; empty: the benchmark's
  JudgeEndpoint endpoint;              // an empty `model` means the one that the benchmark prescribes
  std::string max_tokens_field = "max_tokens";
  bool allow_missing = false;             // judge answers that are there
  int64_t limit = 0;                      // first rows of the benchmark; 0: all
  uint64_t seed = 0;                      // AlpacaEval: order of the two answers
  std::filesystem::path difficulty_file;  // AlpacaEval: instruction_difficulty.csv, if at hand
  std::filesystem::path gamed_file;       // AlpacaEval: df_gamed.csv, if at hand
  BootstrapUnit bootstrap_unit = BootstrapUnit::kBattle;  // Arena-Hard
  BootstrapOptions bootstrap;                             // Arena-Hard
};

struct JudgedBenchmark {
  nlohmann::ordered_json json;  // as written to OUT/results.json
  std::string terminal_table;
  std::string markdown;     // as written to OUT/results.md
  int64_t num_invalid = 0;  // judgements that count for nothing
};

// AlpacaEval 2: writes results.json and results.md into `out`, and annotations.json and judge_log.jsonl where
// an endpoint is asked. Throws DataError and ConfigError for unusable files and options.
JudgedBenchmark judge_alpaca_eval(const JudgedBenchmarkOptions& options);

// Arena-Hard: the same with judgements.jsonl.
JudgedBenchmark judge_arena_hard(const JudgedBenchmarkOptions& options);

}  // namespace smoe
