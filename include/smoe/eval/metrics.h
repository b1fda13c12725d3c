// From sums to scores with standard errors.
#pragma once

#include <cstdint>
#include <vector>

#include "smoe/eval/items.h"
#include "smoe/eval/scorer.h"

namespace smoe {

// The score of one choice (or text): of all its requests together.
struct ChoiceScore {
  double sum = 0.0;
  bool is_greedy = true;
  int64_t num_tokens = 0;
};
using ItemScore = std::vector<ChoiceScore>;  // one entry a choice

// A metric as one number pair a row: the score is sum(values) / sum(weights), then exp if `exponential`.
struct MetricSeries {
  std::vector<double> values;
  std::vector<double> weights;
  bool exponential = false;
};

struct Estimate {
  double value = 0.0;
  double standard_error = 0.0;  // 0 where a single row gives none
};

MetricSeries metric_series(Metric metric, TaskKind kind, const std::vector<EvaluationItem>& items,
                           const std::vector<ItemScore>& scores);

// Ratio estimate; its standard error is the usual s/sqrt(n), s with n-1, where all weights are 1, and the
// linearised one of a ratio elsewhere; exponentials by the delta method.
Estimate estimate(const MetricSeries& series);

// estimate(b) - estimate(a) with the standard error of the paired difference: both series are of the same
// rows.
Estimate paired_difference(const MetricSeries& a, const MetricSeries& b);

// Plain mean of independent estimates.
Estimate mean_estimate(const std::vector<Estimate>& estimates);

// Index of the choice with the largest sum, by `metric`'s normalisation; the lowest index on ties.
int64_t predicted_choice(Metric metric, const EvaluationItem& item, const ItemScore& score);

}  // namespace smoe
