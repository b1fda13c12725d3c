#include "smoe/train/validation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>

#include "smoe/core/error.h"
#include "smoe/core/progress.h"
#include "smoe/routing/router_statistics.h"
#include "smoe/train/gradient_accumulator.h"
#include "smoe/train/loss.h"
#include "smoe/train/model_input.h"
#include "smoe/train/run_data.h"

namespace smoe {

// What is gathered over all sources.
struct Validation::Tally {
  std::vector<RouterStatistics> statistics;  // a budget; empty without segment routing
  std::vector<double> nesting_sums;          // a pair of neighbouring budgets, times segments
  double num_segments = 0.0;
  std::string failure;  // of this process's rows

  void sum_over_processes(Communicator& all);
};

namespace {

// Sum of the cross-entropy over the targets of `rows`, in nats.
double cross_entropy_sum(const ModelOutput& output, const Batch& rows, const Model& model,
                         int64_t chunk_tokens) {
  const at::Device device = model.device();
  const at::Tensor weights_N = rows.loss_mask_BT.flatten().to(device, at::kFloat);
  const HeadLoss head =
      head_cross_entropy(output.hidden_BTD.flatten(0, 1), model.output_weight(),
                         rows.targets_BT.flatten().to(device), weights_N, {0.0, chunk_tokens});
  return head.cross_entropy_N.sum(at::kDouble).item<double>();
}

}  // namespace

Validation::Validation(const TrainConfig& config, const Tokenizer& tokenizer) : config_(config) {
  for (const SourceConfig& source : config.data.validation) {
    sources_.push_back(open_validation_data(config, source, tokenizer));
  }
}

namespace {

// Sums over the processes of all that one source adds up, and of what the tally holds.
void sum_counts(Communicator& all, SourceValidation& result, std::vector<double>& sums) {
  std::vector<double> values = sums;
  values.push_back(static_cast<double>(result.num_targets));
  const at::Tensor total = at::tensor(values, at::kDouble);
  all.all_reduce_sum(total, "validation losses");
  const double* value = total.const_data_ptr<double>();
  for (double& sum : sums) sum = *value++;
  result.num_targets = static_cast<int64_t>(*value);
}

}  // namespace

void Validation::Tally::sum_over_processes(Communicator& all) {
  if (all.world_size() == 1 || statistics.empty()) return;
  std::vector<double> values = nesting_sums;
  values.push_back(num_segments);
  const at::Tensor total = at::tensor(values, at::kDouble);
  all.all_reduce_sum(total, "nesting of masks");
  const double* value = total.const_data_ptr<double>();
  for (double& sum : nesting_sums) sum = *value++;
  num_segments = *value;
  for (RouterStatistics& one : statistics) {
    const at::Tensor sums = one.sums();
    all.all_reduce_sum(sums, "router statistics");
    one.set_sums(sums);
  }
}

// Segments of the rows that other processes have before this one's.
int64_t Validation::first_segment(const ValidationData& data, const RankRange& rows,
                                  Communicator& all) const {
  if (all.world_size() == 1) return 0;
  const at::Tensor own = at::zeros({1}, at::kLong);
  if (rows.size() > 0) {
    own.fill_(make_segments(data.rows(rows.begin, rows.size()), config_.model.routing.segment_length)
                  .num_segments());
  }
  const at::Tensor of_all = at::empty({all.world_size()}, at::kLong);
  all.all_gather(of_all, own, "numbers of validation segments");
  return of_all.narrow(0, 0, all.rank()).sum().item<int64_t>();
}

// All budgets of a few rows.
void Validation::run_rows(const Model& model, const Batch& rows, SelectionControls& controls, Tally& tally,
                          std::vector<double>& sums) const {
  at::Tensor smaller_QLE;
  at::Tensor dense_states_BTD;
  int64_t num_segments = 0;
  for (size_t budget = 0; budget < sums.size(); ++budget) {
    ModelInput input = make_model_input(
        rows, config_.model.routing.segment_length,
        std::vector<int64_t>(static_cast<size_t>(rows.num_rows()), static_cast<int64_t>(budget)),
        model.device(), config_.model.routing.selector_position);
    if (budget == 0 && sums.size() > 1 && dense_states_are_shared(config_.model)) {
      dense_states_BTD = model.dense_states(input);
    }
    input.dense_states_BTD = dense_states_BTD;
    const ModelOutput output = model.forward(input, controls);
    sums[budget] += cross_entropy_sum(output, rows, model, config_.loss.head_chunk_tokens);
    if (!output.plan) continue;
    num_segments = input.segments.num_segments();
    const double segments = static_cast<double>(num_segments);
    tally.statistics[budget].add(*output.plan, input.segments);
    if (budget > 0) {
      tally.nesting_sums[budget - 1] += segments * nesting_ratio(smaller_QLE, output.plan->mask_QLE);
    } else {
      tally.num_segments += segments;
    }
    smaller_QLE = output.plan->mask_QLE;
  }
  controls.first_segment += num_segments;
}

SourceValidation Validation::run_source(const Model& model, size_t source, Communicator& all,
                                        Tally& tally) const {
  const ValidationData& data = *sources_[source];
  const int64_t num_budgets = static_cast<int64_t>(budget_names(config_.model).size());
  const int64_t num_rows =
      config_.validation_rows == 0 ? data.num_rows() : std::min(config_.validation_rows, data.num_rows());
  const RankRange own = rank_range(num_rows, all.rank(), all.world_size());
  std::optional<ProgressBar> progress;
  if (all.is_main())
    progress.emplace("validation " + config_.data.validation[source].name, own.size(), "rows");
  SourceValidation result;
  result.name = config_.data.validation[source].name;
  std::vector<double> sums(static_cast<size_t>(num_budgets), 0.0);
  // Segments are numbered within the source, so that no random mask depends on the micro-batch size.
  SelectionControls controls;
  controls.first_segment = first_segment(data, own, all);
  try {
    for (int64_t begin = own.begin; begin < own.end; begin += config_.micro_batch_size) {
      const Batch rows = data.rows(begin, std::min(config_.micro_batch_size, own.end - begin));
      result.num_targets += rows.num_targets();
      run_rows(model, rows, controls, tally, sums);
      if (progress) progress->advance(rows.num_rows());
    }
  } catch (const NumericError& error) {
    // The others wait for the sums, and learn of it by them.
    tally.failure = error.what();
    sums.assign(sums.size(), std::numeric_limits<double>::quiet_NaN());
    result.num_targets = std::max<int64_t>(result.num_targets, 1);
  }
  if (all.world_size() > 1) {
    const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
    if (tally.failure.empty() && !std::isfinite(total))
      tally.failure = fmt::format("its share of the loss of source {} is {}", result.name, total);
    sum_counts(all, result, sums);
  }
  const double targets = static_cast<double>(result.num_targets);
  SMOE_CHECK(DataError, targets > 0.0, "validation source {}: its first {} rows have no target token",
             result.name, num_rows);
  const double bytes_per_token = data.bytes_per_token();
  for (const double sum : sums) {
    result.losses.push_back(sum / targets);
    // A store whose text size is not known has no bits per byte; 0 says so.
    result.bits_per_byte.push_back(bytes_per_token > 0.0 ? sum / targets / std::numbers::ln2 / bytes_per_token
                                                         : 0.0);
  }
  return result;
}

ValidationReport Validation::run(const Model& model) const { return run(model, *Communicator::single()); }

ValidationReport Validation::run(const Model& model, Communicator& all) const {
  const at::NoGradGuard no_gradient;
  const auto start = std::chrono::steady_clock::now();
  ValidationReport report;
  report.budgets = budget_names(config_.model);
  Tally tally;
  tally.statistics = make_router_statistics(config_.model);
  if (!tally.statistics.empty()) tally.nesting_sums.assign(report.budgets.size() - 1, 0.0);
  for (size_t source = 0; source < sources_.size(); ++source) {
    report.sources.push_back(run_source(model, source, all, tally));
  }
  tally.sum_over_processes(all);
  report.own_failure = tally.failure;
  for (const RouterStatistics& statistics : tally.statistics) report.panels.push_back(statistics.panel());
  for (const double sum : tally.nesting_sums) report.nesting.push_back(sum / tally.num_segments);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace smoe
