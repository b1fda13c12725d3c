#include "smoe/infer/generation_report.h"

#include <fmt/format.h>

namespace smoe {

std::string describe_stats(const GenerationStats& stats) {
  std::string text = fmt::format(
      "prefill {} tokens in {:.3f} s ({:.1f} tokens/s), decode {} tokens in {:.3f} s ({:.1f} tokens/s)",
      stats.prompt_tokens, stats.prefill_s, stats.prefill_tokens_per_s(), stats.decode_tokens, stats.decode_s,
      stats.decode_tokens_per_s());
  if (stats.refreshes > 0) {
    text +=
        fmt::format(", {} refreshes, {:.1f}% of the experts kept", stats.refreshes, 100 * stats.kept_share());
  }
  return text;
}

nlohmann::json result_to_json(const GenerationResult& result) {
  const GenerationStats& stats = result.stats;
  nlohmann::json value = {{"request", result.request},
                          {"text", result.text},
                          {"ids", result.ids},
                          {"finish", finish_reason_name(result.finish)},
                          {"stats",
                           {{"prompt_tokens", stats.prompt_tokens},
                            {"new_tokens", stats.new_tokens},
                            {"queue_s", stats.queue_s},
                            {"prefill_s", stats.prefill_s},
                            {"decode_s", stats.decode_s},
                            {"prefill_tokens_per_s", stats.prefill_tokens_per_s()},
                            {"decode_tokens_per_s", stats.decode_tokens_per_s()},
                            {"refreshes", stats.refreshes},
                            {"kept_share", stats.kept_share()}}}};
  if (!result.logprobs.empty()) value["logprobs"] = result.logprobs;
  if (!result.error.empty()) value["error"] = result.error;
  if (result.stop) value["stop"] = *result.stop;
  if (result.stop_id) value["stop_id"] = *result.stop_id;
  return value;
}

}  // namespace smoe
