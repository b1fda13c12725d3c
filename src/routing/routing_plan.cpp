#include "smoe/routing/routing_plan.h"

#include <algorithm>
#include <limits>

#include "random_scores.h"
#include "smoe/core/error.h"
#include "smoe/routing/host_to_device.h"
#include "smoe/routing/soft_top_k.h"

namespace smoe {
namespace {

// Falls linearly from 1 at the start of training to 0 at `fraction` of it.
double remaining(double progress, double fraction) {
  return fraction > 0 ? std::max(0.0, 1.0 - progress / fraction) : 0.0;
}

// A row is one (segment, layer), layer fastest.
struct Shape {
  int64_t num_segments;
  int64_t num_layers;
  int64_t num_experts;
};

// k of each row.
at::Tensor counts_of_rows(const at::Tensor& count_Q, const Shape& shape) {
  return count_Q.repeat_interleave(shape.num_layers);
}

at::Tensor prefix_mask(const at::Tensor& counts_R, const Shape& shape, at::Device device) {
  const at::Tensor index_E = at::arange(shape.num_experts, counts_R.options());
  return copy_to_device((index_E < counts_R.unsqueeze(1)).to(at::kFloat), device);
}

// What the hard mask is ranked by. Bias, noise and random scores move the selection only; the soft mask keeps
// to the logits, so that none of them leaks into the router's gradient.
at::Tensor selection_scores(const at::Tensor& logits_RE, const at::Tensor& selection_bias_LE,
                            const SelectionControls& controls, const Shape& shape) {
  at::Tensor scores_RE = logits_RE;
  const auto& [num_segments, num_layers, num_experts] = shape;
  if (selection_bias_LE.defined()) scores_RE = scores_RE + selection_bias_LE.repeat({num_segments, 1});
  if (controls.noise > 0) {
    const at::Tensor noise_RE =
        gaussian_scores(controls.seed, num_segments, num_layers, num_experts, controls.first_segment);
    scores_RE = scores_RE + copy_to_device(noise_RE, scores_RE.device()) * controls.noise;
  }
  if (controls.random_probability > 0) {
    const at::Tensor random_Q =
        random_segments(controls.seed, num_segments, controls.random_probability, controls.first_segment);
    const at::Tensor random_R1 =
        copy_to_device(random_Q.repeat_interleave(num_layers).unsqueeze(1), scores_RE.device());
    const at::Tensor random_RE = copy_to_device(
        random_scores(controls.seed, num_segments, num_layers, num_experts, controls.first_segment),
        scores_RE.device());
    // A forbidden expert stays forbidden, and a broken score stays broken: it has to be reported.
    const at::Tensor replaced_RE = at::logical_and(random_R1, at::isfinite(scores_RE));
    scores_RE = at::where(replaced_RE, random_RE, scores_RE);
  }
  return scores_RE;
}

// The row sums of the soft mask: min(scale * k, E).
at::Tensor soft_sums(const at::Tensor& counts, double scale, int64_t num_experts) {
  return (counts.to(at::kDouble) * scale).clamp_max(static_cast<double>(num_experts));
}

void check_shapes(const at::Tensor& logits_QLE, const at::Tensor& count_Q,
                  const at::Tensor& selection_bias_LE) {
  SMOE_ASSERT(logits_QLE.defined() && logits_QLE.dim() == 3 && logits_QLE.scalar_type() == at::kFloat);
  SMOE_ASSERT(count_Q.dim() == 1 && count_Q.size(0) == logits_QLE.size(0));
  SMOE_ASSERT(count_Q.is_cpu() && count_Q.scalar_type() == at::kLong);
  if (!selection_bias_LE.defined()) return;
  SMOE_ASSERT(selection_bias_LE.dim() == 2 && selection_bias_LE.size(0) == logits_QLE.size(1) &&
              selection_bias_LE.size(1) == logits_QLE.size(2));
}

// Fixed controls do not look at scores, so that their budgets are checked here.
void check_counts(const at::Tensor& count_Q, int64_t num_experts) {
  const at::Tensor counts_Q = count_Q.contiguous();
  const int64_t* const counts = counts_Q.const_data_ptr<int64_t>();
  for (int64_t q = 0; q < counts_Q.size(0); ++q) {
    SMOE_CHECK(NumericError, counts[q] >= 0 && counts[q] <= num_experts,
               "routing: segment {} is asked to select {} experts; the allowed range is 0 to the {} experts "
               "of a layer",
               q, counts[q], num_experts);
  }
}

RoutingPlan plan_from_logits(const at::Tensor& logits_QLE, const at::Tensor& count_Q,
                             const RoutingConfig& config, const SelectionControls& controls,
                             const at::Tensor& selection_bias_LE) {
  const Shape shape{logits_QLE.size(0), logits_QLE.size(1), logits_QLE.size(2)};
  const at::Tensor counts_R = counts_of_rows(count_Q, shape);
  const at::Tensor logits_RE = logits_QLE.reshape({-1, shape.num_experts});
  const at::Tensor sums_R = soft_sums(counts_R, config.soft_top_k.soft_budget_scale, shape.num_experts);
  const at::Tensor soft_RE = soft_top_k(logits_RE, sums_R, controls.temperature, config.soft_top_k.kind);
  at::Tensor hard_RE;
  {
    const at::NoGradGuard no_gradient;
    const at::Tensor bias_LE =
        selection_bias_LE.defined() ? selection_bias_LE.detach().to(logits_QLE.device()) : at::Tensor();
    hard_RE = hard_top_k(selection_scores(logits_RE.detach(), bias_LE, controls, shape), counts_R);
  }
  RoutingPlan plan;
  plan.mask_QLE = straight_through(hard_RE, soft_RE).reshape(logits_QLE.sizes());
  plan.soft_QLE = soft_RE.detach().reshape(logits_QLE.sizes());
  plan.logits_QLE = logits_QLE;
  return plan;
}

}  // namespace

SelectionControls selection_controls(const RoutingConfig& config, double progress, uint64_t seed) {
  SMOE_ASSERT(progress >= 0 && progress <= 1);
  const SoftTopKConfig& soft = config.soft_top_k;
  SelectionControls controls;
  const double final_temperature = soft.final_temperature.value_or(soft.temperature);
  controls.temperature = soft.temperature + (final_temperature - soft.temperature) * progress;
  controls.noise = config.selection_noise * remaining(progress, config.selection_noise_fraction);
  controls.random_probability = remaining(progress, config.random_mask_fraction);
  controls.seed = seed;
  return controls;
}

RoutingPlan make_routing_plan(const at::Tensor& logits_QLE, const at::Tensor& count_Q,
                              const RoutingConfig& config, const SelectionControls& controls,
                              const at::Tensor& selection_bias_LE) {
  check_shapes(logits_QLE, count_Q, selection_bias_LE);
  check_counts(count_Q, logits_QLE.size(2));
  const Shape shape{logits_QLE.size(0), logits_QLE.size(1), logits_QLE.size(2)};
  RoutingPlan plan;
  switch (config.mask_source) {
    case MaskSource::kPrefix: {
      const at::Tensor counts_R = counts_of_rows(count_Q, shape);
      plan.mask_QLE = prefix_mask(counts_R, shape, logits_QLE.device()).reshape(logits_QLE.sizes());
      break;
    }
    case MaskSource::kRandom: {
      const at::Tensor scores_RE = random_scores(controls.seed, shape.num_segments, shape.num_layers,
                                                 shape.num_experts, controls.first_segment);
      plan.mask_QLE =
          copy_to_device(hard_top_k(scores_RE, counts_of_rows(count_Q, shape)), logits_QLE.device())
              .reshape(logits_QLE.sizes());
      break;
    }
    case MaskSource::kLearned:
    case MaskSource::kInputIndependent:
      try {
        plan = plan_from_logits(logits_QLE, count_Q, config, controls, selection_bias_LE);
      } catch (const NumericError& error) {
        throw NumericError(fmt::format(
            "routing logits of {} segments, {} MoE layers, {} experts (row = segment * {} + "
            "layer): {}",
            shape.num_segments, shape.num_layers, shape.num_experts, shape.num_layers, error.what()));
      }
      break;
  }
  plan.count_Q = count_Q;
  return plan;
}

}  // namespace smoe
