// The measurements behind smoe-bench data: how fast text becomes tokens, and how fast stored tokens become
// rows of training. Both go through the classes that the tools use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "smoe/bench/bench_config.h"
#include "smoe/bench/speed_report.h"

namespace smoe {

struct TokenizingBenchOptions {
  std::vector<std::filesystem::path> inputs;  // see document_reader.h; read into memory first
  std::string text_key = "text";
  std::vector<std::filesystem::path> tokenizers;
  std::vector<int64_t> threads = {1};
  int64_t repetitions = 5;
};

// Every tokenizer encodes all documents on each number of threads, with empty caches. Throws DataError as
// DocumentReader and load_tokenizer do.
SpeedReport run_tokenizing_bench(const TokenizingBenchOptions& options);

struct LoadingBenchOptions {
  std::filesystem::path work_folder;   // two token stores of random ids are written there and removed
  int64_t store_tokens = 100'000'000;  // of both stores together
  int64_t sequence_length = 2048;
  int64_t rows_per_step = 8;
  int64_t steps = 256;  // read in each repetition
  int64_t vocab_size = 50'000;
  int64_t repetitions = 5;
  uint64_t seed = 1;
};

// A mixture of the two stores, 3 to 1, is read row by row in the random order of training, as a stream and
// packed, once with the pages of the stores in memory (labels pages=warm) and once after the system was asked
// to drop them (cold).
SpeedReport run_loading_bench(const LoadingBenchOptions& options);

// What reading rows costs beside the training step that needs them.
struct LoadingShare {
  double training_tokens_per_core_s = 0;  // unique tokens
  double loading_tokens_per_core_s = 0;   // of the slowest warm row
  double share() const { return training_tokens_per_core_s / loading_tokens_per_core_s; }
};
// `training` is a report of run_train_bench.
LoadingShare loading_share(const SpeedReport& loading, const SpeedReport& training);

// Tokens and bytes a second of rows of either bench.
std::string data_table(const SpeedReport& report);

}  // namespace smoe
