// Packs requests into batch rows. The choices of an item become one row: what their contexts have in common
// once, as the trunk, then what follows it in each side by side, as branches that see the trunk and
// themselves, but not each other.
//
// Shape legend: B rows, T tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "smoe/eval/pair_encoding.h"
#include "smoe/model/model.h"
#include "smoe/routing/routing_mode.h"

namespace smoe {

struct PackingOptions {
  int64_t batch_tokens = 8192;  // most tokens of a batch, padding included; a longer row is a batch by itself
  int64_t segment_length = 32;
  RoutingMode routing = RoutingMode::kSegments;
  SelectorPosition selector_position = SelectorPosition::kFirst;  // the model's
};

// Requests of one row.
struct RequestTree {
  std::vector<size_t> requests;
  // Ids of the contexts, after the shared prefix, that all requests have in common. Where the last id of a
  // context routes it, these are whole contexts.
  int64_t trunk = 0;
  // Tokens of the row, without the shared prefix; the last id of a continuation is only predicted, never an
  // input.
  int64_t length = 0;
};

// Puts neighbouring requests of the same group into one row if their contexts are equal, or, routed in
// segments, if their contexts have most of their ids in common. Means over tokens that reach from a trunk
// into one of several branches can't be told to the model; with these a request that is routed in segments
// has a row of its own. Longest tree first (ties in request order).
std::vector<RequestTree> build_request_trees(const std::vector<Request>& requests,
                                             RoutingMode routing = RoutingMode::kSegments,
                                             SelectorPosition position = SelectorPosition::kFirst);

// One id to be predicted: by the hidden state at `position` of the flattened [B*T].
struct ScoredToken {
  int64_t position = 0;
  int64_t token = 0;
  size_t request = 0;
};

struct RequestBatch {
  ModelInput input;                  // on the CPU
  std::vector<ScoredToken> targets;  // ascending in position
  int64_t num_requests = 0;
};

// Packs trees that have the same shared prefix, padded on the right to the longest. Padding attends to itself
// and is routed by itself. Positions, where they are given, count the prefix; rows hold what comes after it.
RequestBatch pack_request_trees(const std::vector<Request>& requests, std::span<const RequestTree> trees,
                                const PackingOptions& options, int64_t budget);

}  // namespace smoe
