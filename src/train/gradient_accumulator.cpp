#include "smoe/train/gradient_accumulator.h"

#include <algorithm>
#include <numeric>

#include "smoe/core/error.h"
#include "smoe/core/random.h"
#include "smoe/train/loss.h"
#include "smoe/train/model_input.h"

namespace smoe {
namespace {

int64_t num_budgets(const ModelConfig& config) { return static_cast<int64_t>(budget_names(config).size()); }

// The part of a plan that belongs to rows of `budget`.
std::pair<RoutingPlan, SegmentMap> rows_of_budget(const RoutingPlan& plan, const ModelInput& input,
                                                  int64_t budget) {
  SegmentMap segments = input.segments;
  segments.segments.clear();
  std::vector<int64_t> chosen;
  for (int64_t q = 0; q < input.segments.num_segments(); ++q) {
    const Segment& segment = input.segments.segments[static_cast<size_t>(q)];
    if (input.budget_of_row[static_cast<size_t>(segment.row)] != budget) continue;
    segments.segments.push_back(segment);
    chosen.push_back(q);
  }
  const at::Tensor index_Q = at::tensor(chosen, at::kLong);
  const at::Tensor device_index_Q = index_Q.to(plan.mask_QLE.device());
  const auto select = [&](const at::Tensor& all) {
    return all.defined() ? all.detach().index_select(0, device_index_Q) : all;
  };
  RoutingPlan part{select(plan.mask_QLE), select(plan.soft_QLE), select(plan.logits_QLE),
                   plan.count_Q.index_select(0, index_Q)};
  return {std::move(part), std::move(segments)};
}

}  // namespace

std::vector<std::string> budget_names(const ModelConfig& config) {
  if (config.architecture == Architecture::kDense) return {"dense"};
  std::vector<std::string> names;
  for (const BudgetConfig& budget : config.budgets) names.push_back(budget.name);
  return names;
}

std::vector<double> loss_weights(const TrainConfig& config) {
  if (config.model.architecture == Architecture::kDense) return {1.0};
  if (config.loss.budget_weights) return *config.loss.budget_weights;
  return budget_loss_weights(config.model.budgets, config.loss.budget_weight_power);
}

std::vector<RouterStatistics> make_router_statistics(const ModelConfig& config) {
  std::vector<RouterStatistics> statistics;
  if (config.architecture != Architecture::kSteppedMoe) return statistics;
  for (size_t i = 0; i < config.budgets.size(); ++i) {
    statistics.emplace_back(config.num_moe_layers, config.num_experts);
  }
  return statistics;
}

// Sums of a step that stay on the device until its end: reading one back would make a GPU wait.
struct GradientAccumulator::Totals {
  double denominator = 1.0;
  int64_t router_tokens = 0;               // tokens of all passes
  at::Tensor expert_share_LE;              // vanilla: share of the step's selections that each expert got
  std::vector<SegmentLoad> segment_loads;  // stepped_moe with a balance loss: a replica
  at::Tensor loss, balance_loss, router_z_loss;
  std::vector<std::pair<std::vector<int64_t>, at::Tensor>> row_sums;  // budgets and CE sums of the rows
  at::Tensor load_LE;
  std::vector<RouterStatistics>* panels = nullptr;
};

GradientAccumulator::GradientAccumulator(const Model& model, const TrainConfig& config)
    : model_(model),
      config_(config),
      weights_(loss_weights(config)),
      sampler_(config.budget_sampling, num_budgets(config.model), static_cast<uint64_t>(config.seed)) {
  SMOE_ASSERT(static_cast<int64_t>(weights_.size()) == num_budgets(config.model));
}

std::vector<GradientAccumulator::Pass> GradientAccumulator::passes(const Batch& batch) const {
  const int64_t num_rows = batch.num_rows();
  std::vector<int64_t> first_segment(static_cast<size_t>(num_rows) + 1, 0);
  for (const Segment& segment : make_segments(batch, config_.model.routing.segment_length).segments) {
    ++first_segment[static_cast<size_t>(segment.row) + 1];
  }
  std::partial_sum(first_segment.begin(), first_segment.end(), first_segment.begin());
  std::vector<Pass> all;
  for (int64_t begin = 0; begin < num_rows; begin += config_.micro_batch_size) {
    const int64_t count = std::min(config_.micro_batch_size, num_rows - begin);
    for (int64_t replica = 0; replica < sampler_.num_replicas(); ++replica)
      all.push_back({replica, begin, count, first_segment[static_cast<size_t>(begin)]});
  }
  return all;
}

bool GradientAccumulator::needs_global_loads(const Batch& batch) const {
  const ModelConfig& model = config_.model;
  const bool has_parts = batch.num_rows() > config_.micro_batch_size;
  if (model.architecture == Architecture::kVanillaMoe) {
    return model.token_router.load_balance_weight > 0.0 && (has_parts || sampler_.num_replicas() > 1);
  }
  return model.architecture == Architecture::kSteppedMoe &&
         model.routing.balance.kind == BalanceKind::kLoss && has_parts;
}

std::vector<int64_t> GradientAccumulator::budgets_of(const Pass& pass, const StepPosition& at) const {
  std::vector<int64_t> budgets;
  for (int64_t row = 0; row < pass.count; ++row) {
    budgets.push_back(sampler_.budget(pass.replica, at.position + pass.begin + row, at.step));
  }
  return budgets;
}

SelectionControls GradientAccumulator::controls_of(const Pass& pass, const StepPosition& at) const {
  // Counters only, no generator with a state: a resumed run draws the same noise, and so does another
  // micro-batch size, because segments are numbered within the step. Replicas number theirs alike and draw
  // alike, so that the random masks of a sequence are nested over its budgets.
  const uint64_t step_seed = mix_seeds(static_cast<uint64_t>(config_.seed), static_cast<uint64_t>(at.step));
  const double progress = static_cast<double>(at.step - 1) / static_cast<double>(config_.steps);
  SelectionControls controls = selection_controls(config_.model.routing, progress,
                                                  mix_seeds(step_seed, static_cast<uint64_t>(at.position)));
  controls.first_segment = pass.first_segment;
  return controls;
}

ModelInput GradientAccumulator::input_of(const Batch& batch, const Pass& pass, const StepPosition& at) const {
  return make_model_input(slice_rows(batch, pass.begin, pass.count), config_.model.routing.segment_length,
                          budgets_of(pass, at), model_.device());
}

at::Tensor GradientAccumulator::token_weights(const Batch& rows, const std::vector<int64_t>& budgets,
                                              double denominator) const {
  std::vector<double> row_weights;
  for (const int64_t budget : budgets)
    row_weights.push_back(weights_[static_cast<size_t>(budget)] / denominator);
  const at::Tensor weights_B1 = at::tensor(row_weights, at::kDouble).unsqueeze(1);
  return (rows.loss_mask_BT.to(at::kDouble) * weights_B1).flatten();
}

// A balance loss needs the load of each expert over the whole step before the first backward. Where a pass
// is all there is to count, its own counts are those; otherwise a forward without gradients counts them
// first. Counts of the passes so far would be free, but would make the loss depend on the micro-batch size.
void GradientAccumulator::count_expert_loads(const Batch& batch, const std::vector<Pass>& all_passes,
                                             const StepPosition& at, Totals& totals) const {
  const at::NoGradGuard no_gradient;
  at::Tensor count_LE;
  totals.segment_loads.resize(static_cast<size_t>(sampler_.num_replicas()));
  for (const Pass& pass : all_passes) {
    const ModelOutput output = model_.forward(input_of(batch, pass, at), controls_of(pass, at));
    if (output.plan) totals.segment_loads[static_cast<size_t>(pass.replica)].add(*output.plan);
    if (!output.token_router) continue;
    const at::Tensor& selected_LE = output.token_router->selected_count_LE;
    count_LE = count_LE.defined() ? count_LE + selected_LE : selected_LE;
  }
  if (count_LE.defined()) {
    totals.expert_share_LE = count_LE.to(at::kFloat) / count_LE.sum(1, /*keepdim=*/true).to(at::kFloat);
  }
}

at::Tensor GradientAccumulator::auxiliary_loss(const ModelOutput& output, const Pass& pass,
                                               const SelectionControls& controls, Totals& totals) const {
  at::Tensor loss;
  const auto add = [&](double weight, const at::Tensor& raw, at::Tensor& total) {
    total.add_(raw.detach());
    if (weight > 0.0) loss = loss.defined() ? loss + weight * raw : weight * raw;
  };
  const ModelConfig& model = config_.model;
  if (output.token_router) {
    const TokenRouterLosses& router = *output.token_router;
    const double tokens = static_cast<double>(totals.router_tokens);
    const at::Tensor count_LE = router.selected_count_LE.to(at::kFloat);
    const at::Tensor share_LE = totals.expert_share_LE.defined()
                                    ? totals.expert_share_LE
                                    : count_LE / count_LE.sum(1, /*keepdim=*/true);
    const at::Tensor balance = (share_LE * router.probability_sum_LE).sum(1).mean() *
                               (static_cast<double>(model.num_experts) / tokens);
    add(model.token_router.load_balance_weight, balance, totals.balance_loss);
    add(model.token_router.z_loss_weight,
        router.z_loss_sum / (tokens * static_cast<double>(model.num_moe_layers)), totals.router_z_loss);
  }
  if (output.plan && model.routing.balance.kind == BalanceKind::kLoss) {
    // The mean over replicas of the balance loss of all their segments.
    const SegmentLoad* whole =
        totals.segment_loads.empty() ? nullptr : &totals.segment_loads[static_cast<size_t>(pass.replica)];
    add(model.routing.balance.loss_weight,
        balance_loss(*output.plan, model.routing, controls, whole) /
            static_cast<double>(sampler_.num_replicas()),
        totals.balance_loss);
  }
  return loss;
}

void GradientAccumulator::add_to_panels(const RoutingPlan& plan, const ModelInput& input,
                                        std::vector<RouterStatistics>& panels) const {
  for (size_t budget = 0; budget < panels.size(); ++budget) {
    const auto [part, segments] = rows_of_budget(plan, input, static_cast<int64_t>(budget));
    if (segments.num_segments() > 0) panels[budget].add(part, segments);
  }
}

void GradientAccumulator::run_pass(const Batch& batch, const Pass& pass, const StepPosition& at,
                                   Totals& totals) {
  const Batch rows = slice_rows(batch, pass.begin, pass.count);
  const ModelInput input = input_of(batch, pass, at);
  const SelectionControls controls = controls_of(pass, at);
  const ModelOutput output = model_.forward(input, controls);
  const at::Tensor hidden_ND = output.hidden_BTD.flatten(0, 1);
  const at::ScalarType sum_type = hidden_ND.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor weights_N = token_weights(rows, input.budget_of_row, totals.denominator).to(sum_type);
  const HeadLoss head =
      head_cross_entropy(hidden_ND, model_.output_weight(), rows.targets_BT.flatten(), weights_N,
                         {config_.loss.z_loss_weight, config_.loss.head_chunk_tokens});
  const at::Tensor auxiliary = auxiliary_loss(output, pass, controls, totals);
  (auxiliary.defined() ? head.weighted_loss + auxiliary : head.weighted_loss).backward();

  totals.loss.add_(head.weighted_loss.detach());
  totals.row_sums.emplace_back(input.budget_of_row,
                               head.cross_entropy_N.view({pass.count, -1}).sum(1, false, at::kDouble));
  if (!output.plan) return;
  const at::Tensor load_LE = output.plan->mask_QLE.detach().sum(0).to(at::kLong);
  totals.load_LE = totals.load_LE.defined() ? totals.load_LE + load_LE : load_LE;
  if (totals.panels != nullptr) add_to_panels(*output.plan, input, *totals.panels);
}

StepLosses GradientAccumulator::accumulate(const Batch& batch, const StepPosition& at,
                                           std::vector<RouterStatistics>* panels) {
  const std::vector<Pass> all_passes = passes(batch);
  const at::TensorOptions options = at::TensorOptions(model_.device()).dtype(at::kDouble);
  StepLosses losses;
  losses.unique_targets = batch.num_targets();
  losses.processed_tokens = batch.tokens_BT.numel() * sampler_.num_replicas();
  Totals totals;
  totals.denominator = static_cast<double>(losses.unique_targets * sampler_.num_replicas());
  totals.router_tokens = losses.processed_tokens;
  totals.loss = at::zeros({}, options);
  totals.balance_loss = at::zeros({}, options);
  totals.router_z_loss = at::zeros({}, options);
  totals.panels = panels;
  SMOE_CHECK(DataError, losses.unique_targets > 0,
             "step {}: the {} sequences from position {} have no target token", at.step, batch.num_rows(),
             at.position);
  if (needs_global_loads(batch)) count_expert_loads(batch, all_passes, at, totals);
  for (const Pass& pass : all_passes) run_pass(batch, pass, at, totals);

  read_losses(batch, all_passes, totals, losses);
  return losses;
}

// The only place of a step where the host waits for the device, and it does so once.
void GradientAccumulator::read_losses(const Batch& batch, const std::vector<Pass>& all_passes,
                                      const Totals& totals, StepLosses& losses) const {
  std::vector<at::Tensor> parts = {at::stack({totals.loss, totals.balance_loss, totals.router_z_loss})};
  for (const auto& [budgets, sums_B] : totals.row_sums) parts.push_back(sums_B);
  const at::Tensor host = at::cat(parts).cpu();
  const double* value = host.const_data_ptr<double>();
  losses.loss = *value++;
  losses.balance_loss = *value++;
  losses.router_z_loss = *value++;
  losses.load_LE = totals.load_LE;
  losses.cross_entropy_sums.resize(weights_.size());
  losses.num_targets.resize(weights_.size());
  for (size_t i = 0; i < all_passes.size(); ++i) {
    const at::Tensor targets_B =
        batch.loss_mask_BT.narrow(0, all_passes[i].begin, all_passes[i].count).sum(1);
    const int64_t* targets = targets_B.const_data_ptr<int64_t>();
    for (const int64_t budget : totals.row_sums[i].first) {
      losses.cross_entropy_sums[static_cast<size_t>(budget)] += *value++;
      losses.num_targets[static_cast<size_t>(budget)] += *targets++;
    }
  }
}

}  // namespace smoe
