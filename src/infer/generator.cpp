#include "smoe/infer/generator.h"

#include <algorithm>

namespace smoe {
namespace {

void add_stats(const GenerationStats& part, GenerationStats& total) {
  total.queue_s += part.queue_s;
  total.prefill_s += part.prefill_s;
  total.decode_s += part.decode_s;
  total.prompt_tokens += part.prompt_tokens;
  total.new_tokens += part.new_tokens;
  total.decode_tokens += part.decode_tokens;
  total.refreshes += part.refreshes;
  total.selected_experts += part.selected_experts;
  total.kept_experts += part.kept_experts;
}

}  // namespace

std::vector<GenerationResult> Generator::generate(std::vector<GenerationRequest> requests) {
  GenerationSession session(model_, tokenizer_, limits_);
  for (GenerationRequest& request : requests) session.add(std::move(request));
  while (session.step()) {
  }
  std::vector<GenerationResult> results = session.take_finished();
  std::ranges::sort(results, {}, &GenerationResult::request);
  add_stats(session.stats(), stats_);
  return results;
}

GenerationResult Generator::generate(GenerationRequest request) {
  std::vector<GenerationRequest> requests;
  requests.push_back(std::move(request));
  return std::move(generate(std::move(requests)).front());
}

std::vector<int32_t> default_stop_ids(const Tokenizer& tokenizer) {
  const std::optional<int32_t> eos = tokenizer.eos_id();
  return eos ? std::vector<int32_t>{*eos} : std::vector<int32_t>{};
}

}  // namespace smoe
