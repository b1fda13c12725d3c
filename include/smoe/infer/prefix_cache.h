// Keys and values of the tokens that several prompts begin with, computed once: the shots of a benchmark, the
// one prompt of many samples.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "smoe/model/model.h"
#include "smoe/routing/routing_mode.h"

namespace smoe {

// A shared prefix must have a multiple of so many tokens, so that its experts do not depend on what follows
// it: whole segments for a Stepped MoE routed in segments, any number for models that route single tokens or
// none. 0: nothing may be shared, because the last prompt token chooses the experts of all tokens before it,
// or because masks are drawn anew for every run.
int64_t shareable_prefix_unit(const ModelConfig& config, RoutingMode routing, int64_t segment_length);

// Not thread-safe.
class PrefixCache {
 public:
  // `model` must outlive the cache. Prefixes that were not used for the longest time go when all together
  // exceed `max_bytes`; the newest one stays, whatever its size.
  explicit PrefixCache(const Model& model, int64_t max_bytes = int64_t{1} << 30)
      : model_(model), max_bytes_(max_bytes) {}

  // One row that holds `tokens` at budget `budget` (an index; ignored by dense models), routed in segments.
  std::shared_ptr<const KvCache> get(std::span<const int32_t> tokens, int64_t budget, int64_t segment_length);

  // Prefixes computed so far: as many as were asked for, unless some had to go.
  int64_t num_computed() const { return num_computed_; }

 private:
  struct Entry {
    std::vector<int32_t> tokens;
    int64_t budget = 0;
    int64_t segment_length = 0;
    std::shared_ptr<const KvCache> cache;
  };

  std::shared_ptr<const KvCache> compute(const Entry& entry) const;
  int64_t bytes_of(const Entry& entry) const;
  void drop_surplus();

  const Model& model_;
  int64_t max_bytes_;
  std::list<Entry> entries_;  // used last comes first
  int64_t num_computed_ = 0;
};

}  // namespace smoe
