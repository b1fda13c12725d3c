// From routing logits to the experts every segment uses in every MoE layer.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "smoe/routing/routing_config.h"
#include "smoe/routing/segment_map.h"

namespace smoe {

// The choice of experts for a batch: Q segments, L MoE layers, E experts.
struct RoutingPlan {
  at::Tensor mask_QLE;    // float32, exactly 0 or 1, exactly k ones in [q, l, :]; straight-through gradient
  at::Tensor soft_QLE;    // float32, the soft mask (detached), for statistics; undefined for fixed controls
  at::Tensor logits_QLE;  // float32, attached to the graph; undefined for fixed controls
  at::Tensor count_Q;     // int64 on the CPU: k of each segment
};

// What training adds to the choice in one step. The defaults are what evaluation uses.
struct SelectionControls {
  double temperature = 1.0;         // current SoftTopK temperature
  double noise = 0.0;               // current standard deviation of the selection noise
  double random_probability = 0.0;  // current probability that a segment's mask is random
  uint64_t seed = 0;                // of this step, for noise and random masks
  int64_t first_segment = 0;        // number of the batch's first segment within the step
};

// The controls at `progress` in [0, 1] of training: annealed temperature, falling noise and randomness.
SelectionControls selection_controls(const RoutingConfig& config, double progress, uint64_t seed);

// Builds the plan. `logits_QLE` float32 [Q, L, E] (differentiable), `count_Q` int64 [Q] on the CPU,
// `selection_bias_LE` float32 [L, E] added for selection only, undefined for none. Sources `random`
// and `prefix` take no more than shape and device from the logits; random masks are a function of
// (seed, first_segment + q, l) only and nested over k. `input_independent` expects logits that do not depend
// on the input (the model provides them). Bias, noise and random masks change which experts are selected; the
// soft mask, and with it the gradient, always belongs to the plain logits.
//
// Throws NumericError on counts outside [0, E] and, on the CPU, on NaN or +inf logits (on a GPU they make the
// mask NaN).
RoutingPlan make_routing_plan(const at::Tensor& logits_QLE, const at::Tensor& count_Q,
                              const RoutingConfig& config, const SelectionControls& controls,
                              const at::Tensor& selection_bias_LE = {});

// The expert load of segments, as the balance loss needs it. It adds up over the parts of a batch.
struct SegmentLoad {
  at::Tensor load_LE;  // float32, sum over segments with k > 0 of mask / k; undefined before the first plan
  int64_t num_segments = 0;  // with k > 0
  void add(const RoutingPlan& plan);
};

// Balance loss of segment routing, a scalar: mean over layers of E/k^2 * sum_e f_e * mean_q(lambda_qe) with
// f_e the share of segments that select e; 1 when uniform. Segments are weighted equally; rows with k = 0
// are left out. Needs plan.logits; recomputes the differentiable soft mask from it.
//
// With `whole`, the plan is a part of a larger batch: f_e is that of the whole, and the parts' losses add up
// to the loss of the whole, with the same gradient.
at::Tensor balance_loss(const RoutingPlan& plan, const RoutingConfig& config,
                        const SelectionControls& controls, const SegmentLoad* whole = nullptr);

}  // namespace smoe
