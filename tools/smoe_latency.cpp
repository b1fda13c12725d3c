// smoe-latency: simulated decoding time of dense, Stepped and vanilla models on a device.
#include <CLI/CLI.hpp>
#include <fstream>

#include "command_line.h"
#include "smoe/core/files.h"
#include "smoe/core/table.h"
#include "smoe/core/tool.h"
#include "smoe/infer/latency_study.h"
#include "smoe/model/parameter_report.h"

namespace {

// Milliseconds a token of each line at each hit rate, for the longest decoding length.
std::string summary(const std::vector<smoe::LatencyRow>& rows, const smoe::LatencyStudyOptions& options) {
  std::vector<std::string> header = {fmt::format("ms a token, {} tokens", options.decode_tokens.back())};
  for (const double rate : options.hit_rates) header.push_back(fmt::format("hit {:g}", rate));
  smoe::Table table(header);
  std::vector<std::string> cells;
  for (const smoe::LatencyRow& row : rows) {
    if (row.decode_tokens != options.decode_tokens.back()) continue;
    if (cells.empty()) cells.push_back(row.line);
    cells.push_back(fmt::format("{:.1f}", row.ms_per_token));
    if (cells.size() == header.size()) {
      table.add_row(std::move(cells));
      cells.clear();
    }
  }
  return table.to_terminal();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Simulates decoding on a device whose experts are on slow storage (paper, Section 3.4).");
  smoe::ConfigSource model, hardware;
  smoe::LatencyStudyOptions options;
  smoe::LatencyPlotOptions plot;
  std::vector<std::string> dense_sizes;
  std::filesystem::path csv;
  app.add_option("--model", model.file, "YAML of a Stepped MoE")->required();
  app.add_option("--hardware", hardware.file, "YAML of a device, as in configs/hardware")->required();
  app.add_option("--set", hardware.overrides, "override of the device: --set storage_bandwidth=2e9")
      ->take_all()
      ->expected(1);
  app.add_option("--budget", options.budget,
                 "budget of the MoE lines, by name or k; default: the largest but one");
  app.add_option("--dense", dense_sizes, "dense sizes to compare with, for example 3B; default 1B to 6B");
  app.add_option("--segment-lengths", options.segment_lengths, "S of the stepped lines")
      ->capture_default_str();
  app.add_option("--hit-rates", options.hit_rates, "shares of experts already in memory")
      ->capture_default_str();
  app.add_option("--tokens", options.decode_tokens, "decoding lengths")->capture_default_str();
  app.add_option("--prompt-tokens", options.prompt_tokens, "context before the first token")
      ->capture_default_str();
  app.add_option("--csv", csv, "every number, as CSV");
  app.add_option("--plot", plot.out, "an .svg or .png (needs gnuplot)");
  app.add_option("--plot-hit-rate", plot.hit_rate, "hit rate of the panel over lengths")
      ->capture_default_str();
  app.add_option("--plot-tokens", plot.decode_tokens, "length of the panel over hit rates")
      ->capture_default_str();
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;

  return smoe::run_tool([&] {
    if (!dense_sizes.empty()) options.dense_sizes.clear();
    for (const std::string& size : dense_sizes) options.dense_sizes.push_back(smoe::parse_count(size));
    const auto device = smoe::read_config<smoe::LatencyHardware>(hardware);
    const auto rows = smoe::run_latency_study(smoe::read_model_config(model), device, options);
    fmt::print("{}", summary(rows, options));
    if (!csv.empty()) smoe::write_file_atomically(csv, smoe::latency_csv(rows));
    if (!plot.out.empty()) {
      plot.title = fmt::format("Decoding time on {}: {}", device.name, model.file.stem().string());
      smoe::plot_latency(rows, plot);
    }
    return 0;
  });
}
