// Rates of tokenizing and loading as a table; speed_report.cpp writes the JSON.
#include <fmt/format.h>

#include "smoe/bench/data_bench.h"
#include "smoe/core/table.h"

namespace smoe {

std::string data_table(const SpeedReport& report) {
  Table table({"what", "best ms", "median ms", "core ms", "Mtok/s", "Mtok/core s", "MB/s", "MB/core s"});
  for (const SpeedRow& row : report.rows) {
    const Duration median = row.samples.median();
    std::string name = row.name;
    for (const auto& [key, value] : row.labels) name += fmt::format(" {}={}", key, value);
    const auto rate = [](int64_t amount, double seconds) {
      return amount > 0 ? fmt::format("{:.2f}", 1e-6 * static_cast<double>(amount) / seconds) : "-";
    };
    table.add_row({name, fmt::format("{:.1f}", 1e3 * row.samples.best().wall_s),
                   fmt::format("{:.1f}", 1e3 * median.wall_s), fmt::format("{:.1f}", 1e3 * median.core_s),
                   rate(row.unique_tokens, median.wall_s), rate(row.unique_tokens, median.core_s),
                   rate(row.text_bytes, median.wall_s), rate(row.text_bytes, median.core_s)});
  }
  return table.to_terminal();
}

}  // namespace smoe
