// Measures decoding on this machine: a dense model in memory, a Stepped MoE and a vanilla MoE of the same
// active size with their experts on disk, at several memory limits, in one run. Weights are random: speed
// depends on sizes and on how often the choice of experts changes, which is measured and reported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "smoe/infer/expert_store.h"
#include "smoe/model/model_config.h"

namespace smoe {

struct DecodeBenchOptions {
  ModelConfig model;                  // a stepped_moe
  std::filesystem::path work_folder;  // on the disk to be measured; packages are written there and removed
  ExpertEncoding encoding = ExpertEncoding::kFloat32;           // of experts on disk
  ExpertEncoding resident_encoding = ExpertEncoding::kFloat32;  // of everything in memory
  std::vector<std::string> budgets;                             // names or k; empty: all
  std::vector<int64_t> segment_lengths = {16, 32, 64};
  // Bytes for routed experts. 0 stands for one whole choice of the budget. Empty: nothing is streamed.
  std::vector<int64_t> memory_limits = {0};
  ExpertStoreConfig store;
  std::vector<int64_t> batch_sizes = {1};  // rows decoded together, with all weights in memory
  int64_t num_tokens = 128;                // measured at least, rounded up to whole segments
  int64_t vanilla_tokens = 32;
  bool stock = true;  // also batch 1 composed of LibTorch's own operators, in float32
  uint64_t seed = 1;
};

struct DecodeBenchRow {
  std::string model;  // dense, stepped, vanilla, and "stock ..." composed of LibTorch's operators
  std::string budget;
  int64_t segment_length = 0;  // stepped only
  int64_t batch = 1;           // rows together
  int64_t slot_bytes = 0;      // memory for streamed experts; 0: all weights are in memory
  int64_t num_tokens = 0;      // of each row
  double prefill_ms = 0;
  double ms_per_token = 0;
  // The dense model of the same active size with as many rows, in turns with this row; its share of the time.
  double dense_ms_per_token = 0;
  double times_dense = 1;
  // Of rows of LibTorch's operators: the stepped row, in turns with this one; times its time.
  double stepped_ms_per_token = 0;
  double times_stepped = 0;
  double active_bytes = 0;        // weights that one token reads
  double memory_bytes_per_s = 0;  // what memory streams, measured between the turns of this row
  double stall_ms = 0;            // a token
  double hit_rate = 0;
  double bytes_per_token = 0;
  // What the disk alone needs for the same numbers of blocks, asked for together as they were here, spread
  // over the tokens and measured in turns with decoding: no design can stall less than the part of this that
  // computing cannot hide, or more than all of it.
  double bound_ms = 0;
  double disk_bytes_per_s = 0;  // in doing so
  // By simulate_decode from the time without stalls and the bound; none where the choice does not fit in the
  // slots, which the simulation does not describe.
  std::optional<double> predicted_stall_ms = std::nullopt;
  std::optional<double> predicted_ms = std::nullopt;
  int64_t peak_memory_bytes = 0;  // of the process so far
};

struct DecodeBenchReport {
  double memory_bytes_per_s = 0;  // the best of all rows
  double disk_bytes_per_s = 0;    // of 64 blocks at a time in random order, through the same backend
  int64_t block_bytes = 0;
  std::vector<DecodeBenchRow> rows;
};

// Calls `progress` with a line before each part. Throws as the parts do.
DecodeBenchReport run_decode_bench(const DecodeBenchOptions& options,
                                   const std::function<void(const std::string&)>& progress);

std::string decode_bench_table(const DecodeBenchReport& report);
// One JSON object a row.
std::string decode_bench_json_lines(const DecodeBenchReport& report);

}  // namespace smoe
