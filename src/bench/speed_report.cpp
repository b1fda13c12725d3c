#include "smoe/bench/speed_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "smoe/core/json.h"
#include "smoe/core/table.h"

namespace smoe {
namespace {

std::string or_dash(double value, const std::string& text) { return value > 0 ? text : "-"; }

std::string labels_text(const SpeedRow& row) {
  std::string text = row.name;
  for (const auto& [key, value] : row.labels) text += fmt::format(" {}={}", key, value);
  return text;
}

std::string phases_table(const SpeedRow& row) {
  double total = 0;
  for (const auto& [name, seconds] : row.phase_s) total += seconds;
  std::vector<std::pair<double, std::string>> phases;
  for (const auto& [name, seconds] : row.phase_s) phases.emplace_back(seconds, name);
  std::sort(phases.rbegin(), phases.rend());
  Table table({labels_text(row) + ": phase", "ms", "%"});
  for (const auto& [seconds, name] : phases) {
    table.add_row({name, fmt::format("{:.2f}", 1e3 * seconds), fmt::format("{:.1f}", 100 * seconds / total)});
  }
  return table.to_terminal();
}

}  // namespace

MatmulPeak matmul_peak_of(const Samples& samples, int64_t products_per_sample) {
  const double flops = kPeakMatrixFlops * static_cast<double>(products_per_sample);
  return {flops / samples.best().wall_s, flops / samples.best().core_s};
}

const SpeedRow& reference_row(const SpeedReport& report, const SpeedRow& row) {
  return *std::find_if(report.rows.begin(), report.rows.end(), [&](const SpeedRow& other) {
    return other.bench == row.bench && other.labels == row.labels;
  });
}

double cost_per_flop(const SpeedReport& report, const SpeedRow& row) {
  const SpeedRow& reference = reference_row(report, row);
  if (row.useful_flops <= 0 || reference.useful_flops <= 0) return 0;
  return row.samples.median().core_s / row.useful_flops /
         (reference.samples.median().core_s / reference.useful_flops);
}

double share_of_peak(const SpeedRow& row, const MatmulPeak& peak) {
  return row.useful_flops / row.samples.best().core_s / peak.per_core_s;
}

std::string speed_table(const SpeedReport& report) {
  Table table({"contestant", "best ms", "median ms", "core ms", "tok/s", "unique tok/s", "useful GFLOP/s",
               "of peak", "of peak (cores)", "MiB", "time x first", "core x first", "per FLOP"});
  for (const SpeedRow& row : report.rows) {
    const Duration best = row.samples.best();
    const Duration median = row.samples.median();
    const Duration reference = reference_row(report, row).samples.median();
    const auto rate = [&](int64_t tokens) {
      return or_dash(static_cast<double>(tokens),
                     fmt::format("{:.0f}", static_cast<double>(tokens) / median.wall_s));
    };
    const double flops = row.useful_flops;
    const double shared = report.peak.per_core_s > 0 ? flops : 0;
    table.add_row(
        {labels_text(row), fmt::format("{:.2f}", 1e3 * best.wall_s),
         fmt::format("{:.2f}", 1e3 * median.wall_s), fmt::format("{:.2f}", 1e3 * median.core_s),
         rate(row.processed_tokens), rate(row.unique_tokens),
         or_dash(flops, fmt::format("{:.1f}", 1e-9 * flops / median.wall_s)),
         or_dash(shared, fmt::format("{:.1f}%", 100 * flops / best.wall_s / report.peak.per_wall_s)),
         or_dash(shared, fmt::format("{:.1f}%", 100 * share_of_peak(row, report.peak))),
         or_dash(static_cast<double>(row.peak_memory_bytes),
                 fmt::format("{:.0f}", static_cast<double>(row.peak_memory_bytes) / (1024.0 * 1024.0))),
         fmt::format("{:.2f}", median.wall_s / reference.wall_s),
         fmt::format("{:.2f}", median.core_s / reference.core_s),
         or_dash(flops, fmt::format("{:.2f}", cost_per_flop(report, row)))});
  }
  std::string text = fmt::format("{} threads", report.num_threads);
  if (report.peak.per_core_s > 0) {
    text += fmt::format("; fp32 matmul peak in this run {:.1f} GFLOP/s by the wall, {:.1f} a core",
                        1e-9 * report.peak.per_wall_s, 1e-9 * report.peak.per_core_s);
  }
  text += "\n";
  text += table.to_terminal();
  for (const SpeedRow& row : report.rows) {
    if (!row.phase_s.empty()) text += phases_table(row);
  }
  return text;
}

std::string speed_json_lines(const SpeedReport& report) {
  std::string lines;
  for (const SpeedRow& row : report.rows) {
    const SpeedRow& reference = reference_row(report, row);
    nlohmann::json line = {
        {"bench", row.bench},
        {"contestant", row.name},
        {"labels", row.labels},
        {"repetitions", row.samples.all.size()},
        {"best_wall_s", row.samples.best().wall_s},
        {"median_wall_s", row.samples.median().wall_s},
        {"best_core_s", row.samples.best().core_s},
        {"median_core_s", row.samples.median().core_s},
        {"times_first_wall", row.samples.median().wall_s / reference.samples.median().wall_s},
        {"times_first_core", row.samples.median().core_s / reference.samples.median().core_s},
        {"threads", report.num_threads}};
    if (report.peak.per_wall_s > 0) {
      line["matmul_peak_wall"] = report.peak.per_wall_s;
      line["matmul_peak_core"] = report.peak.per_core_s;
    }
    if (row.useful_flops > 0) {
      line["useful_flops"] = row.useful_flops;
      line["times_first_core_per_flop"] = cost_per_flop(report, row);
    }
    if (row.useful_flops > 0 && report.peak.per_core_s > 0) {
      line["share_of_peak_core"] = share_of_peak(row, report.peak);
      line["share_of_peak_wall"] = row.useful_flops / row.samples.best().wall_s / report.peak.per_wall_s;
    }
    if (row.processed_tokens > 0) line["processed_tokens"] = row.processed_tokens;
    if (row.unique_tokens > 0) line["unique_tokens"] = row.unique_tokens;
    if (row.items > 0) line["items"] = row.items;
    if (row.text_bytes > 0) line["text_bytes"] = row.text_bytes;
    if (row.peak_memory_bytes > 0) line["peak_memory_bytes"] = row.peak_memory_bytes;
    if (!row.phase_s.empty()) line["phase_s"] = row.phase_s;
    lines += line.dump() + "\n";
  }
  return lines;
}

}  // namespace smoe
