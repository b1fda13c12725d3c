#include "smoe/train/gradient_accumulator.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <numeric>

#include "shared_backbone.h"
#include "smoe/core/error.h"
#include "smoe/core/random.h"
#include "smoe/model/in_place_gradients.h"
#include "smoe/train/loss.h"
#include "smoe/train/model_input.h"
#include "smoe/train/stop_signal.h"

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

void sum_segment_load(Communicator& all, SegmentLoad& load) {
  all.all_reduce_sum(load.load_LE, "segment loads");
  const at::Tensor num_segments = at::full({1}, load.num_segments, at::kLong);
  all.all_reduce_sum(num_segments, "numbers of segments");
  load.num_segments = num_segments.item<int64_t>();
}

}  // namespace

// Sums of a step that stay on the device until its end: reading one back would make a GPU wait.
struct GradientAccumulator::Totals {
  std::optional<SharedBackbone> backbone;
  double denominator = 1.0;
  int64_t router_tokens = 0;               // tokens of all passes
  at::Tensor expert_share_LE;              // vanilla: share of the step's selections that each expert got
  std::vector<SegmentLoad> segment_loads;  // stepped_moe with a balance loss: a replica
  at::Tensor loss, balance_loss, router_z_loss;
  std::vector<std::pair<std::vector<int64_t>, at::Tensor>> row_sums;  // budgets and CE sums of the rows
  at::Tensor load_LE;
  std::vector<RouterStatistics>* panels = nullptr;
  std::string failure;  // of a pass; later ones are left out
};

GradientAccumulator::GradientAccumulator(const Model& model, const TrainConfig& config,
                                         std::shared_ptr<DataParallel> parallel)
    : model_(model),
      config_(config),
      parallel_(parallel && parallel->is_distributed() ? std::move(parallel) : nullptr),
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
  const bool has_parts = parallel_ != nullptr || batch.num_rows() > config_.micro_batch_size;
  if (model.architecture == Architecture::kVanillaMoe) {
    return model.token_router.load_balance_weight > 0.0 && (has_parts || sampler_.num_replicas() > 1);
  }
  return model.architecture == Architecture::kSteppedMoe &&
         model.routing.balance.kind == BalanceKind::kLoss && has_parts;
}

std::vector<int64_t> GradientAccumulator::budgets_of(const Pass& pass, const StepPosition& at) const {
  std::vector<int64_t> budgets;
  for (int64_t row = 0; row < pass.count; ++row) {
    budgets.push_back(sampler_.budget(pass.replica, at.position + at.first_row + pass.begin + row, at.step));
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
                          budgets_of(pass, at), model_.device(), config_.model.routing.selector_position);
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
  const auto count = [&](const Pass& pass) {
    const ModelOutput output = model_.forward(input_of(batch, pass, at), controls_of(pass, at));
    if (output.plan) totals.segment_loads[static_cast<size_t>(pass.replica)].add(*output.plan);
    if (!output.token_router) return;
    const at::Tensor& selected_LE = output.token_router->selected_count_LE;
    count_LE = count_LE.defined() ? count_LE + selected_LE : selected_LE;
  };
  for (const Pass& pass : all_passes) try_to([&] { count(pass); }, totals);
  if (!totals.failure.empty()) {
    const at::Tensor none_LE =
        at::zeros({config_.model.num_moe_layers, config_.model.num_experts}, model_.device());
    if (config_.model.architecture == Architecture::kVanillaMoe) count_LE = none_LE.to(at::kLong);
    for (SegmentLoad& load : totals.segment_loads) {
      if (config_.model.architecture == Architecture::kSteppedMoe) load.load_LE = none_LE.clone();
    }
  }
  if (parallel_ != nullptr) {
    if (count_LE.defined()) parallel_->all().all_reduce_sum(count_LE.contiguous(), "expert loads");
    for (SegmentLoad& load : totals.segment_loads) {
      if (load.load_LE.defined()) sum_segment_load(parallel_->all(), load);
    }
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
  ModelInput input = input_of(batch, pass, at);
  input.dense_states_BTD = totals.backbone->states(model_, input, pass.replica);
  const SelectionControls controls = controls_of(pass, at);
  const ModelOutput output = model_.forward(input, controls);
  const at::Tensor hidden_ND = output.hidden_BTD.flatten(0, 1);
  const at::ScalarType sum_type = hidden_ND.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor weights_N = token_weights(rows, input.budget_of_row, totals.denominator).to(sum_type);
  const HeadLoss head =
      head_cross_entropy(hidden_ND, model_.output_weight(), rows.targets_BT.flatten(), weights_N,
                         {config_.loss.z_loss_weight, config_.loss.head_chunk_tokens});
  const at::Tensor auxiliary = auxiliary_loss(output, pass, controls, totals);
  // Between processes the gradients are summed by hooks, which in-place addition would pass by.
  const InPlaceGradients in_place(parallel_ == nullptr || !parallel_->is_sending());
  (auxiliary.defined() ? head.weighted_loss + auxiliary : head.weighted_loss).backward();

  totals.loss.add_(head.weighted_loss.detach());
  totals.row_sums.emplace_back(input.budget_of_row,
                               head.cross_entropy_N.view({pass.count, -1}).sum(1, false, at::kDouble));
  if (!output.plan) return;
  const at::Tensor load_LE = output.plan->mask_QLE.detach().sum(0).to(at::kLong);
  totals.load_LE = totals.load_LE.defined() ? totals.load_LE + load_LE : load_LE;
  if (totals.panels != nullptr) add_to_panels(*output.plan, input, *totals.panels);
}

// A process on its own ends at a failure. One of several takes part in all operations that the others wait
// for, and fails together with them at a loss that is no number.
void GradientAccumulator::try_to(const std::function<void()>& work, Totals& totals) const {
  if (parallel_ == nullptr) return work();
  if (!totals.failure.empty()) return;
  try {
    work();
  } catch (const NumericError& error) {
    totals.failure = error.what();
  }
}

void GradientAccumulator::make_up_for_failure(Totals& totals) const {
  totals.loss.fill_(std::numeric_limits<double>::quiet_NaN());
  if (config_.model.architecture == Architecture::kSteppedMoe && !totals.load_LE.defined()) {
    totals.load_LE = at::zeros({config_.model.num_moe_layers, config_.model.num_experts},
                               at::TensorOptions(model_.device()).dtype(at::kLong));
  }
}

GradientAccumulator::Split GradientAccumulator::agree_on_split(const Batch& batch,
                                                               std::vector<Pass>& all_passes) const {
  const int64_t num_passes = static_cast<int64_t>(all_passes.size());
  if (parallel_ == nullptr) return {batch.num_targets(), batch.tokens_BT.numel(), 0, num_passes};
  constexpr int64_t kFields = 4;
  const int64_t num_segments = make_segments(batch, config_.model.routing.segment_length).num_segments();
  const at::Tensor own =
      at::tensor({batch.num_targets(), batch.tokens_BT.numel(), num_segments, num_passes}, at::kLong);
  const at::Tensor of_all = at::empty({kFields * parallel_->world_size()}, at::kLong);
  parallel_->all().all_gather(of_all, own, "sizes of the batch");
  Split split;
  const int64_t* value = of_all.const_data_ptr<int64_t>();
  for (int64_t rank = 0; rank < parallel_->world_size(); ++rank, value += kFields) {
    split.num_targets += value[0];
    split.num_tokens += value[1];
    if (rank < parallel_->rank()) split.first_segment += value[2];
    split.most_passes = std::max(split.most_passes, value[3]);
  }
  for (Pass& pass : all_passes) pass.first_segment += split.first_segment;
  return split;
}

void GradientAccumulator::run_passes(const Batch& batch, const std::vector<Pass>& all_passes,
                                     const StepPosition& at, int64_t most_passes, Totals& totals) {
  for (const Pass& pass : all_passes) {
    if (parallel_ != nullptr) parallel_->begin_backward(&pass == &all_passes.back());
    try_to([&] { run_pass(batch, pass, at, totals); }, totals);
    if (parallel_ != nullptr) parallel_->end_backward();
  }
  if (parallel_ == nullptr) return;
  // A process with fewer sequences adds nothing to the passes that the others make together.
  const int64_t own_passes = static_cast<int64_t>(all_passes.size());
  for (int64_t i = own_passes; parallel_->every_pass_counts() && i < most_passes; ++i) {
    parallel_->begin_backward(i + 1 == most_passes);
    parallel_->end_backward();
  }
  parallel_->finish_gradients();
}

StepLosses GradientAccumulator::accumulate(const Batch& batch, const StepPosition& at,
                                           std::vector<RouterStatistics>* panels) {
  std::vector<Pass> all_passes = passes(batch);
  const at::TensorOptions options = at::TensorOptions(model_.device()).dtype(at::kDouble);
  const Split split = agree_on_split(batch, all_passes);
  StepLosses losses;
  losses.unique_targets = split.num_targets;
  losses.processed_tokens = split.num_tokens * sampler_.num_replicas();
  Totals totals;
  totals.backbone.emplace(config_.model, sampler_.num_replicas());
  totals.denominator = static_cast<double>(losses.unique_targets * sampler_.num_replicas());
  totals.router_tokens = losses.processed_tokens;
  totals.loss = at::zeros({}, options);
  totals.balance_loss = at::zeros({}, options);
  totals.router_z_loss = at::zeros({}, options);
  totals.panels = panels;
  SMOE_CHECK(DataError, losses.unique_targets > 0,
             "step {}: the sequences from position {} have no target token", at.step, at.position);
  if (needs_global_loads(batch)) count_expert_loads(batch, all_passes, at, totals);
  run_passes(batch, all_passes, at, split.most_passes, totals);

  if (!totals.failure.empty()) make_up_for_failure(totals);
  read_losses(batch, all_passes, totals, losses);
  if (parallel_ == nullptr) return losses;
  losses.own_failure = totals.failure;
  if (losses.own_failure.empty() && !std::isfinite(losses.loss + losses.balance_loss + losses.router_z_loss))
    losses.own_failure = fmt::format("its share of the loss is {}", losses.loss);
  const int signal = at.stop == nullptr ? 0 : at.stop->received();
  losses.signals = {signal == SIGINT, signal == SIGTERM};
  sum_over_processes(losses, panels);
  return losses;
}

// One operation for all that is reported of a step. Counts are exact in float64.
void GradientAccumulator::sum_over_processes(StepLosses& losses,
                                             std::vector<RouterStatistics>* panels) const {
  std::vector<double> values = {losses.loss, losses.balance_loss, losses.router_z_loss};
  for (const bool signal : losses.signals) values.push_back(signal ? 1.0 : 0.0);
  values.insert(values.end(), losses.cross_entropy_sums.begin(), losses.cross_entropy_sums.end());
  values.insert(values.end(), losses.num_targets.begin(), losses.num_targets.end());
  std::vector<at::Tensor> parts = {at::tensor(values, at::kDouble)};
  if (losses.load_LE.defined()) parts.push_back(losses.load_LE.to(at::kCPU, at::kDouble).flatten());
  for (size_t i = 0; panels != nullptr && i < panels->size(); ++i) parts.push_back((*panels)[i].sums());
  const at::Tensor sums = at::cat(parts);
  parallel_->all().all_reduce_sum(sums, "losses");

  const double* value = sums.const_data_ptr<double>();
  losses.loss = *value++;
  losses.balance_loss = *value++;
  losses.router_z_loss = *value++;
  for (bool& signal : losses.signals) signal = *value++ > 0.0;
  for (double& sum : losses.cross_entropy_sums) sum = *value++;
  for (int64_t& count : losses.num_targets) count = static_cast<int64_t>(*value++);
  int64_t offset = static_cast<int64_t>(values.size());
  if (losses.load_LE.defined()) {
    const int64_t size = losses.load_LE.numel();
    losses.load_LE.copy_(sums.narrow(0, offset, size).view(losses.load_LE.sizes()));
    offset += size;
  }
  for (size_t i = 0; panels != nullptr && i < panels->size(); ++i) {
    const int64_t size = (*panels)[i].sums().numel();
    (*panels)[i].set_sums(sums.narrow(0, offset, size));
    offset += size;
  }
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
  // After a failed pass there are fewer.
  for (size_t i = 0; i < totals.row_sums.size(); ++i) {
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
