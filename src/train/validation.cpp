#include "smoe/train/validation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

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

SourceValidation Validation::run_source(const Model& model, size_t source, Tally& tally) const {
  const ValidationData& data = *sources_[source];
  const int64_t num_budgets = static_cast<int64_t>(budget_names(config_.model).size());
  const int64_t num_rows =
      config_.validation_rows == 0 ? data.num_rows() : std::min(config_.validation_rows, data.num_rows());
  ProgressBar progress("validation " + config_.data.validation[source].name, num_rows, "rows");
  SourceValidation result;
  result.name = config_.data.validation[source].name;
  std::vector<double> sums(static_cast<size_t>(num_budgets), 0.0);
  // Segments are numbered within the source, so that no random mask depends on the micro-batch size.
  SelectionControls controls;
  for (int64_t begin = 0; begin < num_rows; begin += config_.micro_batch_size) {
    const Batch rows = data.rows(begin, std::min(config_.micro_batch_size, num_rows - begin));
    result.num_targets += rows.num_targets();
    at::Tensor smaller_QLE;
    int64_t num_segments = 0;
    for (int64_t budget = 0; budget < num_budgets; ++budget) {
      const ModelInput input = make_model_input(
          rows, config_.model.routing.segment_length,
          std::vector<int64_t>(static_cast<size_t>(rows.num_rows()), budget), model.device());
      const ModelOutput output = model.forward(input, controls);
      sums[static_cast<size_t>(budget)] +=
          cross_entropy_sum(output, rows, model, config_.loss.head_chunk_tokens);
      if (!output.plan) continue;
      num_segments = input.segments.num_segments();
      const double segments = static_cast<double>(num_segments);
      tally.statistics[static_cast<size_t>(budget)].add(*output.plan, input.segments);
      if (budget > 0) {
        tally.nesting_sums[static_cast<size_t>(budget - 1)] +=
            segments * nesting_ratio(smaller_QLE, output.plan->mask_QLE);
      } else {
        tally.num_segments += segments;
      }
      smaller_QLE = output.plan->mask_QLE;
    }
    controls.first_segment += num_segments;
    progress.advance(rows.num_rows());
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

ValidationReport Validation::run(const Model& model) const {
  const at::NoGradGuard no_gradient;
  const auto start = std::chrono::steady_clock::now();
  ValidationReport report;
  report.budgets = budget_names(config_.model);
  Tally tally;
  tally.statistics = make_router_statistics(config_.model);
  if (!tally.statistics.empty()) tally.nesting_sums.assign(report.budgets.size() - 1, 0.0);
  for (size_t source = 0; source < sources_.size(); ++source) {
    report.sources.push_back(run_source(model, source, tally));
  }
  for (const RouterStatistics& statistics : tally.statistics) report.panels.push_back(statistics.panel());
  for (const double sum : tally.nesting_sums) report.nesting.push_back(sum / tally.num_segments);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace smoe
