#include "smoe/infer/streaming_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "smoe/core/error.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/device.h"

namespace smoe {

StreamingModel open_streaming_model(const StreamingOptions& options) {
  const StreamingPackage package(options.package);
  const int64_t num_slots = slots_for_memory(package, options.memory_limit);
  package.verify_files();
  Model model(package.model_config(), at::kCPU, at::kFloat, ExpertPlacement::kProvider);
  load_weights_file(package.resident_path(), model);
  for (const NamedParameter& parameter : model.parameters()) parameter.tensor.set_requires_grad(false);
  auto experts = std::make_shared<ExpertStore>(package, num_slots, options.store);
  model.set_expert_provider(experts);
  return {std::move(model), std::move(experts)};
}

void fit_to_slots(const ExpertStore& experts, const ModelConfig& config, SessionLimits& limits) {
  if (config.architecture != Architecture::kSteppedMoe) return;
  const int64_t layer = config.budgets.back().experts_per_layer;
  const int64_t choice = layer * config.num_moe_layers;
  // Without room for one choice every token reads again, and rows that run together share what is read.
  const int64_t rows = experts.num_slots() / (experts.num_slots() >= choice ? choice : layer);
  limits.max_rows = std::clamp<int64_t>(rows, 1, limits.max_rows);
}

int64_t parse_byte_count(std::string_view text) {
  struct Unit {
    std::string_view name;
    double factor;
  };
  constexpr std::array<Unit, 9> kUnits = {{{"", 1.0},
                                           {"B", 1.0},
                                           {"KB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"KiB", 1024.0},
                                           {"MiB", 1048576.0},
                                           {"GiB", 1073741824.0},
                                           {"TiB", 1099511627776.0}}};
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  if (status == std::errc()) {
    const std::string_view name(stop, static_cast<size_t>(end - stop));
    const auto unit = std::ranges::find(kUnits, name, &Unit::name);
    if (unit != kUnits.end() && number * unit->factor >= 1.0 && number * unit->factor < 9e18) {
      return static_cast<int64_t>(std::llround(number * unit->factor));
    }
  }
  throw ConfigError(
      fmt::format("\"{}\" is no number of bytes; write it as 512MiB, 1.5GiB, 300MB or 4096", text));
}

std::string streaming_report(const ExpertStore& store, int64_t num_tokens) {
  constexpr double kMebibyte = 1024.0 * 1024.0;
  const StreamingStatistics total = store.statistics();
  const auto tokens = static_cast<double>(std::max<int64_t>(num_tokens, 1));
  const auto choices = static_cast<double>(std::max<int64_t>(total.num_choices, 1));
  const auto bytes = static_cast<double>(total.bytes_read);
  std::string text = fmt::format(
      "experts: {} slots, {:.1f} MiB; hit rate {:.1f} % over {} choices; read {:.1f} MiB, {:.3f} MiB a "
      "token, "
      "{:.3f} MiB a choice\n",
      store.num_slots(), static_cast<double>(store.slot_bytes()) / kMebibyte, 100.0 * total.hit_rate(),
      total.num_choices, bytes / kMebibyte, bytes / kMebibyte / tokens, bytes / kMebibyte / choices);
  text += fmt::format(
      "stalls {:.3f} s, {:.2f} ms a token, {:.2f} ms a choice; {} reads retried; peak memory {:.0f} MiB\n",
      total.stall_s, 1e3 * total.stall_s / tokens, 1e3 * total.stall_s / choices, total.num_retries,
      static_cast<double>(peak_memory_bytes(at::kCPU)) / kMebibyte);
  return text;
}

}  // namespace smoe
