#include "smoe/infer/prefix_cache.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {

int64_t shareable_prefix_unit(const ModelConfig& config, RoutingMode routing, int64_t segment_length) {
  if (config.architecture != Architecture::kSteppedMoe) return 1;
  if (routing == RoutingMode::kLastPromptToken) return 0;
  return config.routing.mask_source == MaskSource::kRandom ? 0 : segment_length;
}

std::shared_ptr<const KvCache> PrefixCache::get(std::span<const int32_t> tokens, int64_t budget,
                                                int64_t segment_length) {
  SMOE_ASSERT(!tokens.empty());
  const auto known = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.budget == budget && entry.segment_length == segment_length &&
           std::ranges::equal(entry.tokens, tokens);
  });
  if (known != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, known);
  } else {
    Entry entry{{tokens.begin(), tokens.end()}, budget, segment_length, nullptr};
    entry.cache = compute(entry);
    entries_.push_front(std::move(entry));
    ++num_computed_;
    drop_surplus();
  }
  return entries_.front().cache;
}

std::shared_ptr<const KvCache> PrefixCache::compute(const Entry& entry) const {
  const c10::InferenceMode no_gradients;
  const int64_t num_tokens = std::ssize(entry.tokens);
  auto cache = std::make_shared<KvCache>(model_.config(), 1, num_tokens, model_.device(),
                                         model_.output_weight().scalar_type());
  ModelInput input;
  input.tokens_BT = at::tensor(entry.tokens, at::TensorOptions().dtype(at::kInt))
                        .to(model_.device(), at::kLong)
                        .unsqueeze(0);
  input.segments =
      fixed_segments(1, num_tokens, entry.segment_length, model_.config().routing.selector_position);
  input.budget_of_row = {entry.budget};
  input.cache = cache.get();
  model_.forward(input);
  cache->advance({num_tokens});
  return cache;
}

int64_t PrefixCache::bytes_of(const Entry& entry) const {
  const ModelConfig& config = model_.config();
  const auto element = static_cast<int64_t>(model_.output_weight().element_size());
  const int64_t states = entry.cache->keeps_states() ? config.dim : 0;
  return (2 * config.num_layers() * config.num_kv_heads * config.head_dim + states) * element *
         entry.cache->lengths().front();
}

void PrefixCache::drop_surplus() {
  int64_t bytes = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    bytes += bytes_of(*entry);
    const bool goes = bytes > max_bytes_ && entry != entries_.begin();
    entry = goes ? entries_.erase(entry) : std::next(entry);
  }
}

}  // namespace smoe
