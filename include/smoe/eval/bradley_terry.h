// Bradley-Terry ratings of models from pairwise battles, on the scale of Elo, with bootstrap intervals: the
// score of Arena-Hard.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace smoe {

// One comparison. A draw has score 0.5 and counts as half a win for each.
struct Battle {
  std::string model_a;
  std::string model_b;
  double score_a = 0.5;  // 1: a is better, 0: b is better
  double weight = 1.0;
};

// Ratings by maximum likelihood: a beats b with probability 1 / (1 + 10^((r_b - r_a) / 400)). `anchor` is
// 1000. Throws DataError if a model is not linked to the anchor by battles. Where a model wins or loses
// everything its rating is far off the others and means only that.
std::map<std::string, double> bradley_terry(const std::vector<Battle>& battles, const std::string& anchor);

// Probability that a model of rating `rating` beats one of `opponent`.
double win_probability(double rating, double opponent);

// The p-th percentile (0 to 100), interpolated linearly between the sorted values.
double percentile(std::vector<double> values, double p);

// How battles are drawn anew.
struct BootstrapOptions {
  int64_t rounds = 100;
  uint64_t seed = 42;
};

struct WinRateInterval {
  double win_rate = 0.0;  // predicted by the ratings from all battles, in [0, 1]
  double low = 0.0;       // 2.5th percentile over the rounds
  double high = 0.0;      // 97.5th percentile
  double rating = 0.0;    // of the model, the baseline being 1000
};

// The score of `model` against `baseline`. `groups` holds the battles that are drawn together: one battle a
// group is the published way, all battles of a question a group respects that they are not independent.
WinRateInterval bootstrap_win_rate(const std::vector<std::vector<Battle>>& groups, const std::string& model,
                                   const std::string& baseline, const BootstrapOptions& options);

}  // namespace smoe
