// Rows of speed, as a table for people and as JSON lines for scripts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "smoe/bench/measure.h"

namespace smoe {

struct SpeedRow {
  std::string bench;                          // the subcommand of smoe-bench
  std::string name;                           // of the contestant
  std::map<std::string, std::string> labels;  // what tells rows of one contestant apart: budget, S, ...
  Samples samples;
  double useful_flops = 0;       // 0: not counted
  int64_t processed_tokens = 0;  // over all replicas
  int64_t unique_tokens = 0;
  int64_t text_bytes = 0;                 // of text that became tokens
  int64_t items = 0;                      // rows of a benchmark that were scored
  int64_t peak_memory_bytes = 0;          // above that of the program before the model was made
  std::map<std::string, double> phase_s;  // of one more run with a PhaseRecorder
};

// The floating-point rate of one large matrix product, in FLOP a second of the wall and of a core.
struct MatmulPeak {
  double per_wall_s = 0;
  double per_core_s = 0;
};
MatmulPeak matmul_peak_of(const Samples& samples, int64_t products_per_sample);

struct SpeedReport {
  MatmulPeak peak;  // 0: not measured
  int64_t num_threads = 0;
  std::vector<SpeedRow> rows;
};

// Useful FLOP/s as a share of the matmul peak, in core-seconds, of the best repetition of both: other
// processes on the machine can only make either slower.
double share_of_peak(const SpeedRow& row, const MatmulPeak& peak);

// The first row of the same bench and labels, by which `row` is measured.
const SpeedRow& reference_row(const SpeedReport& report, const SpeedRow& row);
// Core-seconds of `row` over those of its reference, each divided by its useful FLOPs; 0 where these are not
// counted.
double cost_per_flop(const SpeedReport& report, const SpeedRow& row);

// Terminal table: a row for each contestant with its times, rates, and how many times the time of the first
// row with the same labels it takes; then the phases, if any were recorded.
std::string speed_table(const SpeedReport& report);

// One JSON object a row.
std::string speed_json_lines(const SpeedReport& report);

}  // namespace smoe
