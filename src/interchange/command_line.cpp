#include "smoe/interchange/command_line.h"

#include <charconv>
#include <cmath>
#include <map>

#include "smoe/core/error.h"

namespace smoe {

std::optional<at::ScalarType> parse_dtype(const std::string& text) {
  if (text == "stored") return std::nullopt;
  if (text == "bf16") return at::kBFloat16;
  if (text == "fp32") return at::kFloat;
  throw ConfigError(fmt::format("--dtype is {}; allowed are stored, bf16 and fp32", text));
}

uint64_t parse_shard_size(const std::string& text) {
  static const std::map<std::string, double> units = {{"", 1.0},   {"B", 1.0},
                                                      {"KB", 1e3}, {"KiB", 1024.0},
                                                      {"MB", 1e6}, {"MiB", 1024.0 * 1024.0},
                                                      {"GB", 1e9}, {"GiB", 1024.0 * 1024.0 * 1024.0},
                                                      {"TB", 1e12}};
  double number = 0.0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto unit = units.find(std::string(rest, text.data() + text.size()));
  constexpr double kMax = 1e18;
  SMOE_CHECK(ConfigError,
             error == std::errc() && unit != units.end() && number >= 0.0 && number * unit->second < kMax,
             "--max-shard-size is {}; needed is a number with a unit, for example 500MB, 5GB or 4GiB, or 0",
             text);
  return static_cast<uint64_t>(std::llround(number * unit->second));
}

std::string describe_summary(const std::filesystem::path& out, const InterchangeSummary& summary) {
  constexpr double kMegabyte = 1e6;
  std::string text = fmt::format("wrote {}: {}{} tensors, {:.1f} MB in {} weight file{}\n", out.string(),
                                 summary.model_class.empty() ? "" : summary.model_class + ", ",
                                 summary.num_tensors, static_cast<double>(summary.num_bytes) / kMegabyte,
                                 summary.num_files, summary.num_files == 1 ? "" : "s");
  for (const std::string& note : summary.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace smoe
