#include "smoe/eval/length_controlled.h"

#include <algorithm>
#include <cmath>

#include "smoe/core/error.h"
#include "smoe/eval/logistic_regression.h"

namespace smoe {
namespace {

// Published constants: five folds, ten values of C from 1e-4 to 1e4, weight 0.2 for the two rewritten
// baselines.
constexpr int64_t kNumFolds = 5;
constexpr int kNumStrengths = 10;
constexpr double kGamedWeight = 0.2 / 2.0;

double strength(int index) { return std::pow(10.0, -4.0 + 8.0 * index / (kNumStrengths - 1)); }

double standard_deviation(const std::vector<double>& values) {
  double mean = 0.0;
  for (double value : values) mean += value / static_cast<double>(values.size());
  double squares = 0.0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

// Rows of the regression: [difficulty,] model, length. Rewritten baselines first: the folds count rows in
// this order.
LogisticData training_rows(const std::vector<LengthControlItem>& items, const LengthControlData& data) {
  const bool with_difficulty = data.formula() != LengthControl::kMinimal;
  LogisticData rows;
  rows.num_features = with_difficulty ? 3 : 2;
  const auto add = [&](double length, double difficulty, double model, double preference, double weight) {
    std::vector<double> row = {model, std::tanh(length)};
    if (with_difficulty) row.push_back(difficulty);
    rows.add_row(row, preference, weight);
  };
  if (data.gamed) {
    for (size_t i = 0; i < data.gamed->preference.size(); ++i) {
      add(data.gamed->length_feature[i], data.gamed->difficulty[i], 0.0, data.gamed->preference[i],
          kGamedWeight);
    }
  }
  std::vector<double> differences;
  for (const LengthControlItem& item : items) {
    differences.push_back(static_cast<double>(item.baseline_length - item.model_length));
  }
  const double deviation = standard_deviation(differences);
  SMOE_CHECK(DataError, deviation > 0.0,
             "all {} answers differ from the baseline's by the same length; there is nothing to control for",
             items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].preference) continue;
    add(differences[i] / deviation, with_difficulty ? data.difficulty[items[i].index] : 0.0, 1.0,
        *items[i].preference, 1.0);
  }
  return rows;
}

LogisticData rows_of_folds(const LogisticData& rows, int64_t fold, bool held_out) {
  LogisticData chosen;
  chosen.num_features = rows.num_features;
  for (int64_t i = 0; i < rows.num_rows(); ++i) {
    if ((i % kNumFolds == fold) != held_out) continue;
    const auto begin = rows.features.begin() + i * rows.num_features;
    chosen.add_row({begin, begin + rows.num_features}, rows.targets[i], rows.weights[i]);
  }
  return chosen;
}

// Mean over the rows of weight x cross-entropy.
double mean_loss(const LogisticData& rows, const std::vector<double>& w) {
  double sum = 0.0;
  for (int64_t i = 0; i < rows.num_rows(); ++i) {
    double logit = 0.0;
    for (int64_t j = 0; j < rows.num_features; ++j) logit += rows.features[i * rows.num_features + j] * w[j];
    const double p = std::clamp(sigmoid(logit), 1e-15, 1.0 - 1e-15);
    sum -= rows.weights[i] * (rows.targets[i] * std::log(p) + (1.0 - rows.targets[i]) * std::log1p(-p));
  }
  return sum / static_cast<double>(rows.num_rows());
}

// C with the smallest held-out loss; the smallest such C.
double choose_strength(const LogisticData& rows) {
  std::array<double, kNumStrengths> losses{};
  for (int64_t fold = 0; fold < kNumFolds; ++fold) {
    const LogisticData train = rows_of_folds(rows, fold, false);
    const LogisticData test = rows_of_folds(rows, fold, true);
    for (int i = 0; i < kNumStrengths; ++i)
      losses[i] += mean_loss(test, fit_logistic(train, strength(i), 1.0));
  }
  return strength(static_cast<int>(std::ranges::min_element(losses) - losses.begin()));
}

void check_items(const std::vector<LengthControlItem>& items, const LengthControlData& data) {
  const auto judged =
      std::ranges::count_if(items, [](const auto& item) { return item.preference.has_value(); });
  SMOE_CHECK(DataError, judged >= kNumFolds,
             "the length-controlled win rate needs at least {} valid judgements; there are {}", kNumFolds,
             judged);
  if (data.formula() == LengthControl::kMinimal) return;
  for (const LengthControlItem& item : items) {
    SMOE_CHECK(
        DataError, item.index < std::ssize(data.difficulty) && !std::isnan(data.difficulty[item.index]),
        "the difficulty of instruction {} is not in the table; it has {} entries. Use the table of this "
        "benchmark, or none",
        item.index, data.difficulty.size());
  }
}

}  // namespace

LengthControl LengthControlData::formula() const {
  if (difficulty.empty()) return LengthControl::kMinimal;
  return gamed ? LengthControl::kFull : LengthControl::kNoGamed;
}

LengthControlResult length_controlled_win_rate(const std::vector<LengthControlItem>& items,
                                               const LengthControlData& data) {
  check_items(items, data);
  const LogisticData rows = training_rows(items, data);
  LengthControlResult result;
  result.formula = data.formula();
  result.regularization = choose_strength(rows);
  const std::vector<double> w = fit_logistic(rows, result.regularization, 1.0);
  result.model_weight = w[0];
  result.length_weight = w[1];
  result.difficulty_weight = w.size() > 2 ? w[2] : 0.0;

  std::vector<double> predictions;
  for (const LengthControlItem& item : items) {
    const double difficulty = w.size() > 2 ? data.difficulty[item.index] : 0.0;
    predictions.push_back(sigmoid(result.model_weight + result.difficulty_weight * difficulty));
    result.win_rate += predictions.back() / static_cast<double>(items.size());
  }
  result.standard_error = standard_deviation(predictions) / std::sqrt(static_cast<double>(items.size()));
  return result;
}

}  // namespace smoe
