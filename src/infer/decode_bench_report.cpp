// Decoding measurements as a table and as JSON.
#include "smoe/core/json.h"
#include "smoe/core/table.h"
#include "smoe/infer/decode_bench.h"

namespace smoe {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

double real(int64_t value) { return static_cast<double>(value); }

// A share of what memory streams; stalls are not the memory's doing.
double memory_share(const DecodeBenchRow& row) {
  return row.active_bytes / (1e-3 * (row.ms_per_token - row.stall_ms)) / row.memory_bytes_per_s;
}

std::vector<std::string> cells_of(const DecodeBenchRow& row) {
  std::vector<std::string> cells = {row.model, row.budget};
  const bool streamed = row.slot_bytes > 0;
  cells.push_back(row.segment_length > 0 ? fmt::format("{}", row.segment_length) : "");
  cells.push_back(streamed ? fmt::format("{:.0f}", real(row.slot_bytes) / kMebibyte) : "all");
  cells.push_back(fmt::format("{}", row.batch));
  cells.push_back(fmt::format("{:.2f}", row.ms_per_token));
  cells.push_back(fmt::format("{:.2f}", row.times_dense));
  cells.push_back(row.times_stepped > 0 ? fmt::format("{:.2f}", row.times_stepped) : "");
  cells.push_back(row.batch == 1 ? fmt::format("{:.1f}", row.active_bytes / kMebibyte) : "");
  cells.push_back(row.batch == 1 ? fmt::format("{:.0f}", 100.0 * memory_share(row)) : "");
  if (!streamed) return cells;
  cells.push_back(fmt::format("{:.2f}", row.stall_ms));
  cells.push_back(row.predicted_stall_ms ? fmt::format("{:.2f}", *row.predicted_stall_ms) : "");
  cells.push_back(fmt::format("{:.2f}", row.bound_ms));
  cells.push_back(fmt::format("{:.0f}", 100.0 * row.hit_rate));
  cells.push_back(fmt::format("{:.2f}", row.bytes_per_token / kMebibyte));
  cells.push_back(fmt::format("{:.0f}", row.disk_bytes_per_s / 1e6));
  if (row.predicted_ms) {
    cells.push_back(fmt::format("{:.2f}", *row.predicted_ms));
    cells.push_back(fmt::format("{:+.1f}", 100.0 * (*row.predicted_ms / row.ms_per_token - 1.0)));
  }
  return cells;
}

template <class T>
nlohmann::ordered_json optional_json(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::string decode_bench_table(const DecodeBenchReport& report) {
  Table table({"model", "budget", "S", "experts MiB", "rows", "ms/token", "x dense", "x stepped",
               "MiB active", "% memory", "stall ms", "predicted", "bound", "hit %", "MiB/token", "disk MB/s",
               "predicted ms", "off %"});
  std::string previous;
  for (const DecodeBenchRow& row : report.rows) {
    const std::string group = row.model + row.budget + (row.slot_bytes > 0 ? "s" : "");
    if (!previous.empty() && previous != group) table.add_separator();
    previous = group;
    table.add_row(cells_of(row));
  }
  return fmt::format("memory: {:.1f} GB/s; disk: {:.0f} MB/s in blocks of {:.3f} MiB\n{}",
                     report.memory_bytes_per_s / 1e9, report.disk_bytes_per_s / 1e6,
                     real(report.block_bytes) / kMebibyte, table.to_terminal());
}

std::string decode_bench_json_lines(const DecodeBenchReport& report) {
  std::string text;
  for (const DecodeBenchRow& row : report.rows) {
    nlohmann::ordered_json json = {{"model", row.model},
                                   {"budget", row.budget},
                                   {"segment_length", row.segment_length},
                                   {"batch", row.batch},
                                   {"slot_bytes", row.slot_bytes},
                                   {"num_tokens", row.num_tokens},
                                   {"prefill_ms", row.prefill_ms},
                                   {"ms_per_token", row.ms_per_token},
                                   {"dense_ms_per_token", row.dense_ms_per_token},
                                   {"times_dense", row.times_dense},
                                   {"times_stepped", row.times_stepped},
                                   {"active_bytes", row.active_bytes},
                                   {"memory_bytes_per_s", row.memory_bytes_per_s},
                                   {"memory_share", memory_share(row)},
                                   {"stall_ms", row.stall_ms},
                                   {"hit_rate", row.hit_rate},
                                   {"bytes_per_token", row.bytes_per_token},
                                   {"bound_ms", row.bound_ms},
                                   {"peak_memory_bytes", row.peak_memory_bytes},
                                   {"disk_bytes_per_s", row.disk_bytes_per_s}};
    json["predicted_stall_ms"] = optional_json(row.predicted_stall_ms);
    json["predicted_ms"] = optional_json(row.predicted_ms);
    text += json.dump() + "\n";
  }
  return text;
}

}  // namespace smoe
