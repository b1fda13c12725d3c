#include "smoe/eval/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace smoe {
namespace {

EvaluationItem choices(std::vector<std::string> texts, int64_t gold) {
  EvaluationItem item;
  for (const std::string& text : texts) item.pairs.push_back({"q", " " + text});
  item.choices = std::move(texts);
  item.gold = gold;
  return item;
}

ItemScore sums(std::vector<double> values) {
  ItemScore score;
  for (const double value : values) score.push_back({value, false, 2});
  return score;
}

double value_of(Metric metric, const EvaluationItem& item, const ItemScore& score) {
  return estimate(metric_series(metric, TaskKind::kMultipleChoice, {item}, {score})).value;
}

TEST(Metrics, NormalisationByCharactersAndBytesCanDisagree) {
  // Sums per character: -1, -1.5; per byte: -1, -0.75: "éé" has two characters in four bytes.
  const EvaluationItem item = choices({"ab", "éé"}, 1);
  const ItemScore score = sums({-2.0, -3.0});
  EXPECT_EQ(value_of(Metric::kAccuracy, item, score), 0.0);
  EXPECT_EQ(value_of(Metric::kAccuracyCharacters, item, score), 0.0);
  EXPECT_EQ(value_of(Metric::kAccuracyBytes, item, score), 1.0);
}

TEST(Metrics, TiesGoToTheLowestIndex) {
  EXPECT_EQ(predicted_choice(Metric::kAccuracy, choices({"a", "b", "c"}, 0), sums({-2.0, -1.0, -1.0})), 1);
}

TEST(Metrics, AnEmptyChoiceNeverWinsByNormalisation) {
  EXPECT_EQ(predicted_choice(Metric::kAccuracyCharacters, choices({"", "b"}, 0), sums({-0.1, -5.0})), 1);
}

TEST(Metrics, CentredAccuracyIsZeroAtChance) {
  const EvaluationItem item = choices({"a", "b", "c", "d"}, 0);
  const MetricSeries series = metric_series(
      Metric::kAccuracyCentered, TaskKind::kMultipleChoice, {item, item, item, item},
      {sums({0, -1, -1, -1}), sums({-1, 0, -1, -1}), sums({-1, 0, -1, -1}), sums({-1, 0, -1, -1})});
  EXPECT_NEAR(estimate(series).value, 0.0, 1e-12);
}

TEST(Metrics, GoldBitsPerByteCountTheScoredText) {
  // " ab" has three bytes.
  EXPECT_NEAR(value_of(Metric::kGoldBitsPerByte, choices({"ab", "x"}, 0), sums({-3.0 * std::log(2.0), 0.0})),
              1.0, 1e-12);
}

TEST(Metrics, StandardErrorOfAMeanUsesNMinusOne) {
  const Estimate result = estimate({{1, 0, 0, 1, 1}, {1, 1, 1, 1, 1}, false});
  EXPECT_DOUBLE_EQ(result.value, 0.6);
  EXPECT_NEAR(result.standard_error, std::sqrt((3 * 0.16 + 2 * 0.36) / 4.0 / 5.0), 1e-12);
}

TEST(Metrics, ASingleRowHasNoStandardError) { EXPECT_EQ(estimate({{1}, {1}, false}).standard_error, 0.0); }

TEST(Metrics, PerplexityIsTheExponentialWithTheDeltaMethodsError) {
  const Estimate log_result = estimate({{1.0, 2.0, 4.0}, {1, 1, 1}, false});
  const Estimate result = estimate({{1.0, 2.0, 4.0}, {1, 1, 1}, true});
  EXPECT_NEAR(result.value, std::exp(7.0 / 3.0), 1e-12);
  EXPECT_NEAR(result.standard_error, result.value * log_result.standard_error, 1e-12);
}

TEST(Metrics, RatiosWeightRowsByTheirSize) {
  const Estimate result = estimate({{2.0, 30.0}, {1.0, 9.0}, false});
  EXPECT_DOUBLE_EQ(result.value, 3.2);
  // Residuals 2 - 3.2 and 30 - 28.8.
  EXPECT_NEAR(result.standard_error, std::sqrt(2.0 * (1.44 + 1.44)) / 10.0, 1e-12);
}

TEST(Metrics, PairedDifferencesIgnoreWhatBothBudgetsShare) {
  const MetricSeries a = {{1, 0, 1, 0}, {1, 1, 1, 1}, false};
  const MetricSeries b = {{1, 0, 1, 1}, {1, 1, 1, 1}, false};
  const Estimate difference = paired_difference(a, b);
  EXPECT_DOUBLE_EQ(difference.value, 0.25);
  // The standard error of 0, 0, 0, 1; unpaired it would be 0.38.
  EXPECT_NEAR(difference.standard_error, 0.25, 1e-12);
  EXPECT_EQ(paired_difference(a, a).standard_error, 0.0);
}

TEST(Metrics, GroupMeansAddErrorsInQuadrature) {
  const Estimate mean = mean_estimate({{0.2, 0.03}, {0.6, 0.04}});
  EXPECT_DOUBLE_EQ(mean.value, 0.4);
  EXPECT_DOUBLE_EQ(mean.standard_error, 0.025);
}

}  // namespace
}  // namespace smoe
