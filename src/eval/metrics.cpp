#include "smoe/eval/metrics.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "smoe/core/error.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

double choice_length(Metric metric, const std::string& choice) {
  if (metric == Metric::kAccuracyCharacters) return static_cast<double>(count_code_points(choice));
  if (metric == Metric::kAccuracyBytes) return static_cast<double>(choice.size());
  return 1.0;
}

bool is_correct(Metric metric, TaskKind kind, const EvaluationItem& item, const ItemScore& score) {
  if (kind == TaskKind::kLastWord) return score.front().is_greedy;
  return predicted_choice(metric, item, score) == item.gold;
}

struct ValueAndWeight {
  double value = 0.0;
  double weight = 1.0;
};

ValueAndWeight item_value(Metric metric, TaskKind kind, const EvaluationItem& item, const ItemScore& score) {
  const ChoiceScore& gold = score[static_cast<size_t>(item.gold)];
  // Bytes and words of a text are those of the file, whatever filters made of it.
  const std::string& text = kind == TaskKind::kRollingText
                                ? item.choices.front()
                                : item.pairs[static_cast<size_t>(item.gold)].continuation;
  const auto num_bytes = static_cast<double>(text.size());
  switch (metric) {
    case Metric::kAccuracy:
    case Metric::kAccuracyCharacters:
    case Metric::kAccuracyBytes:
      return {is_correct(metric, kind, item, score) ? 1.0 : 0.0};
    case Metric::kAccuracyCentered: {
      const double chance = 1.0 / static_cast<double>(score.size());
      const double correct = is_correct(Metric::kAccuracy, kind, item, score) ? 1.0 : 0.0;
      return {score.size() > 1 ? (correct - chance) / (1.0 - chance) : 0.0};
    }
    case Metric::kGoldBitsPerByte:
      return {-gold.sum / std::numbers::ln2 / num_bytes};
    case Metric::kPerplexity:
      return {-gold.sum};
    case Metric::kLoss:
      return {-gold.sum, static_cast<double>(gold.num_tokens)};
    case Metric::kBitsPerByte:
      return {-gold.sum / std::numbers::ln2, num_bytes};
    case Metric::kBytePerplexity:
      return {-gold.sum, num_bytes};
    case Metric::kWordPerplexity:
      return {-gold.sum, static_cast<double>(count_whitespace_pieces(text))};
  }
  SMOE_ASSERT(false);
}

double total_weight(const MetricSeries& series) {
  return std::accumulate(series.weights.begin(), series.weights.end(), 0.0);
}

// 0 where no row counts, as in the published tools.
double ratio(const MetricSeries& series) {
  const double total = total_weight(series);
  return total == 0.0 ? 0.0 : std::accumulate(series.values.begin(), series.values.end(), 0.0) / total;
}

// How much each row moves the estimate, to first order: the standard error is that of the sum of these.
std::vector<double> influences(const MetricSeries& series) {
  const double value = ratio(series);
  const double total = total_weight(series);
  if (total == 0.0) return std::vector<double>(series.values.size(), 0.0);
  const double slope = series.exponential ? std::exp(value) : 1.0;
  std::vector<double> result(series.values.size());
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = slope * (series.values[i] - value * series.weights[i]) / total;
  }
  return result;
}

double standard_error(const std::vector<double>& influences) {
  const auto n = static_cast<double>(influences.size());
  if (influences.size() < 2) return 0.0;
  const double squares = std::inner_product(influences.begin(), influences.end(), influences.begin(), 0.0);
  return std::sqrt(squares * n / (n - 1.0));
}

}  // namespace

int64_t predicted_choice(Metric metric, const EvaluationItem& item, const ItemScore& score) {
  size_t best = 0;
  double best_value = -INFINITY;
  for (size_t i = 0; i < score.size(); ++i) {
    const double value = score[i].sum / choice_length(metric, item.choices[i]);
    if (value > best_value) {
      best = i;
      best_value = value;
    }
  }
  return static_cast<int64_t>(best);
}

MetricSeries metric_series(Metric metric, TaskKind kind, const std::vector<EvaluationItem>& items,
                           const std::vector<ItemScore>& scores) {
  SMOE_ASSERT(items.size() == scores.size());
  MetricSeries series;
  series.exponential =
      metric == Metric::kPerplexity || metric == Metric::kWordPerplexity || metric == Metric::kBytePerplexity;
  for (size_t i = 0; i < items.size(); ++i) {
    const ValueAndWeight entry = item_value(metric, kind, items[i], scores[i]);
    series.values.push_back(entry.value);
    series.weights.push_back(entry.weight);
  }
  return series;
}

Estimate estimate(const MetricSeries& series) {
  const double value = ratio(series);
  return {series.exponential ? std::exp(value) : value, standard_error(influences(series))};
}

Estimate paired_difference(const MetricSeries& a, const MetricSeries& b) {
  SMOE_ASSERT(a.values.size() == b.values.size());
  const std::vector<double> of_a = influences(a);
  std::vector<double> difference = influences(b);
  for (size_t i = 0; i < difference.size(); ++i) difference[i] -= of_a[i];
  return {estimate(b).value - estimate(a).value, standard_error(difference)};
}

Estimate mean_estimate(const std::vector<Estimate>& estimates) {
  Estimate mean;
  double variance = 0.0;
  for (const Estimate& one : estimates) {
    mean.value += one.value;
    variance += one.standard_error * one.standard_error;
  }
  const auto n = static_cast<double>(estimates.size());
  return {mean.value / n, std::sqrt(variance) / n};
}

}  // namespace smoe
