// Health of the routing, accumulated over micro-batches: the router panel of training and evaluation.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "smoe/routing/routing_plan.h"
#include "smoe/routing/segment_map.h"

namespace smoe {

// One line of the panel; all means over layers (and segments) unless a name says otherwise.
struct RouterPanel {
  double load_entropy = 0;       // entropy of the expert load / log E, in [0, 1]; 1 is even
  double max_violation = 0;      // max load / mean load - 1, worst layer
  double dead_expert_share = 0;  // experts that no segment selected
  double saturated_share = 0;    // selected experts whose soft mask is 1: no gradient reaches them
  double neighbor_overlap = 0;   // share of a segment's experts that its predecessor had: the cache hit rate
  double random_pair_cosine =
      0;                 // cosine of the masks of two segments, mean over all pairs; k/E for random masks
  double logit_std = 0;  // standard deviation of the logits over segments, mean over experts
};

// Names and values of a panel, in the order in which they are written.
struct RouterPanelField {
  const char* name;
  double RouterPanel::*value;
};
inline constexpr std::array kRouterPanelFields = {
    RouterPanelField{"load_entropy", &RouterPanel::load_entropy},
    RouterPanelField{"max_violation", &RouterPanel::max_violation},
    RouterPanelField{"dead_expert_share", &RouterPanel::dead_expert_share},
    RouterPanelField{"saturated_share", &RouterPanel::saturated_share},
    RouterPanelField{"neighbor_overlap", &RouterPanel::neighbor_overlap},
    RouterPanelField{"random_pair_cosine", &RouterPanel::random_pair_cosine},
    RouterPanelField{"logit_std", &RouterPanel::logit_std}};

class RouterStatistics {
 public:
  RouterStatistics(int64_t num_layers, int64_t num_experts);
  // Adds the plan of one micro-batch (no gradient is kept). Plans without logits leave logit_std at 0.
  void add(const RoutingPlan& plan, const SegmentMap& segments);
  RouterPanel panel() const;
  // int64 [L, E]: how many segments selected each expert.
  const at::Tensor& load_LE() const { return load_LE_; }
  int64_t num_segments() const { return num_segments_; }
  void reset();

  // Everything accumulated so far as one float64 vector on the CPU: the sums of several objects (of several
  // processes, say) are the vector of all that they saw.
  at::Tensor sums() const;
  void set_sums(const at::Tensor& sums);

 private:
  at::Tensor load_LE_;
  int64_t num_segments_ = 0;
  at::Tensor normalized_load_LE_;  // masks scaled to length 1, summed
  int64_t num_nonempty_ = 0;       // segments with k > 0
  double selected_ = 0;
  double saturated_ = 0, soft_selected_ = 0;  // of plans with a soft mask
  double overlap_ = 0, overlap_pairs_ = 0;
  at::Tensor logit_sum_LE_, logit_square_sum_LE_;
  int64_t num_logit_segments_ = 0;
};

// Share of the experts of the smaller budget that the larger one has too, mean over segments and layers:
// 1 when nested. Both float32 [Q, L, E] masks of the same segments.
double nesting_ratio(const at::Tensor& smaller_QLE, const at::Tensor& larger_QLE);

// New selection bias [L, E] after one optimizer step: bias + rate * sign(mean load - load), then centred to
// zero mean a layer so that it cannot drift (load: int64 [L, E]).
at::Tensor updated_selection_bias(const at::Tensor& bias_LE, const at::Tensor& load_LE, double rate);

}  // namespace smoe
