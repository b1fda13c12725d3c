#include "smoe/eval/bradley_terry.h"

#include <algorithm>
#include <cmath>

#include "smoe/core/error.h"
#include "smoe/core/random.h"
#include "smoe/eval/logistic_regression.h"

namespace smoe {
namespace {

constexpr double kScale = 400.0;
constexpr double kAnchorRating = 1000.0;

// Battles of one pair together: the likelihood depends on their sums only.
struct PairTotal {
  double score = 0.0;
  double weight = 0.0;
};
using PairTotals = std::map<std::pair<std::string, std::string>, PairTotal>;

void add_battle(PairTotals& totals, const Battle& battle) {
  if (battle.weight <= 0.0) return;
  PairTotal& total = totals[{battle.model_a, battle.model_b}];
  total.score += battle.weight * battle.score_a;
  total.weight += battle.weight;
}

// Column of each model but the anchor.
std::map<std::string, size_t> columns_of(const PairTotals& totals, const std::string& anchor) {
  std::map<std::string, size_t> columns;
  for (const auto& [pair, total] : totals) {
    for (const std::string& name : {pair.first, pair.second}) {
      if (name != anchor) columns.emplace(name, 0);
    }
  }
  size_t next = 0;
  for (auto& [name, column] : columns) column = next++;
  return columns;
}

void check_linked(const PairTotals& totals, const std::map<std::string, size_t>& columns,
                  const std::string& anchor) {
  std::map<std::string, bool> linked = {{anchor, true}};
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [pair, total] : totals) {
      if (linked[pair.first] == linked[pair.second]) continue;
      linked[pair.first] = linked[pair.second] = changed = true;
    }
  }
  for (const auto& [name, column] : columns) {
    SMOE_CHECK(DataError, linked[name],
               "model {} has no chain of battles to {}; their ratings cannot be compared", name, anchor);
  }
}

std::map<std::string, double> ratings_of(const PairTotals& totals, const std::string& anchor) {
  const std::map<std::string, size_t> columns = columns_of(totals, anchor);
  check_linked(totals, columns, anchor);
  LogisticData data;
  data.num_features = std::ssize(columns);
  for (const auto& [pair, total] : totals) {
    std::vector<double> row(columns.size(), 0.0);
    if (pair.first != anchor) row[columns.at(pair.first)] += 1.0;
    if (pair.second != anchor) row[columns.at(pair.second)] -= 1.0;
    data.add_row(row, total.score / total.weight, total.weight);
  }
  const std::vector<double> w = fit_logistic(data, 1.0, 0.0);
  std::map<std::string, double> ratings = {{anchor, kAnchorRating}};
  for (const auto& [name, column] : columns) {
    ratings[name] = kAnchorRating + kScale / std::log(10.0) * w[column];
  }
  return ratings;
}

}  // namespace

std::map<std::string, double> bradley_terry(const std::vector<Battle>& battles, const std::string& anchor) {
  PairTotals totals;
  for (const Battle& battle : battles) {
    SMOE_CHECK(DataError, battle.score_a >= 0.0 && battle.score_a <= 1.0 && battle.model_a != battle.model_b,
               "a battle of {} and {} with score {}; expected two models and a score from 0 to 1",
               battle.model_a, battle.model_b, battle.score_a);
    add_battle(totals, battle);
  }
  return ratings_of(totals, anchor);
}

double win_probability(double rating, double opponent) {
  return sigmoid((rating - opponent) * std::log(10.0) / kScale);
}

double percentile(std::vector<double> values, double p) {
  SMOE_ASSERT(!values.empty());
  std::ranges::sort(values);
  const double position = p / 100.0 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

WinRateInterval bootstrap_win_rate(const std::vector<std::vector<Battle>>& groups, const std::string& model,
                                   const std::string& baseline, const BootstrapOptions& options) {
  SMOE_CHECK(ConfigError, options.rounds >= 1, "{} bootstrap rounds; at least 1 is needed", options.rounds);
  PairTotals all;
  for (const auto& group : groups) {
    for (const Battle& battle : group) add_battle(all, battle);
  }
  SMOE_CHECK(DataError, !all.empty(), "no battle of {} against {} has a valid verdict", model, baseline);
  WinRateInterval interval;
  interval.rating = ratings_of(all, baseline).at(model);
  interval.win_rate = win_probability(interval.rating, kAnchorRating);

  SplitMix64 random(options.seed);
  std::vector<double> samples;
  for (int64_t round = 0; round < options.rounds; ++round) {
    PairTotals drawn;
    for (size_t i = 0; i < groups.size(); ++i) {
      for (const Battle& battle : groups[random.below(groups.size())]) add_battle(drawn, battle);
    }
    // Groups whose verdicts were all invalid can make up a whole draw of a tiny run.
    if (drawn.empty()) continue;
    samples.push_back(win_probability(ratings_of(drawn, baseline).at(model), kAnchorRating));
  }
  SMOE_ASSERT(!samples.empty());
  interval.low = percentile(samples, 2.5);
  interval.high = percentile(samples, 97.5);
  return interval;
}

}  // namespace smoe
