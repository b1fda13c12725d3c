// Logistic regression on few features, solved to the precision of the arithmetic: the leaderboards' formulas
// are defined by their minimum, not by where a solver stops.
#pragma once

#include <cstdint>
#include <vector>

namespace smoe {

// Row i has the features features[i * num_features ...], a probability as target, and a weight.
struct LogisticData {
  int64_t num_features = 0;
  std::vector<double> features;
  std::vector<double> targets;  // in [0, 1]
  std::vector<double> weights;  // at least 0

  int64_t num_rows() const { return static_cast<int64_t>(targets.size()); }
  void add_row(const std::vector<double>& row, double target, double weight);
};

// The coefficients w that minimise
//   l1 * sum |w_j| + scale * sum_i weight_i * crossentropy(target_i, sigmoid(w . x_i))
// without intercept. `l1` 0 gives the maximum of the likelihood; where the classes can be separated that lies
// at infinity, and the result predicts within 1e-10 of 0 and 1. Throws NumericError if no minimum is reached.
std::vector<double> fit_logistic(const LogisticData& data, double scale, double l1);

double sigmoid(double logit);

}  // namespace smoe
