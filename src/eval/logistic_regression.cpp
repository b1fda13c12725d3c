#include "smoe/eval/logistic_regression.h"

#include <algorithm>
#include <cmath>

#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr int kMaxSteps = 500;
constexpr int kMaxSweeps = 10000;

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

double soft_threshold(double value, double threshold) {
  return std::copysign(std::max(std::abs(value) - threshold, 0.0), value);
}

// The objective around one point: its value, gradient and Hessian of the smooth part.
class Objective {
 public:
  Objective(const LogisticData& data, double scale, double l1) : data_(data), scale_(scale), l1_(l1) {}

  double value(const std::vector<double>& w) const {
    double sum = 0.0;
    for (int64_t i = 0; i < data_.num_rows(); ++i) {
      const double logit = logit_of(i, w);
      sum += data_.weights[i] * (softplus(logit) - data_.targets[i] * logit);
    }
    double penalty = 0.0;
    for (double coefficient : w) penalty += std::abs(coefficient);
    return scale_ * sum + l1_ * penalty;
  }

  void expand(const std::vector<double>& w, std::vector<double>& gradient,
              std::vector<double>& hessian) const {
    const int64_t n = data_.num_features;
    gradient.assign(n, 0.0);
    hessian.assign(n * n, 0.0);
    for (int64_t i = 0; i < data_.num_rows(); ++i) {
      const double* x = &data_.features[i * n];
      const double p = sigmoid(logit_of(i, w));
      const double slope = scale_ * data_.weights[i] * (p - data_.targets[i]);
      const double curvature = scale_ * data_.weights[i] * p * (1.0 - p);
      for (int64_t a = 0; a < n; ++a) {
        gradient[a] += slope * x[a];
        for (int64_t b = 0; b < n; ++b) hessian[a * n + b] += curvature * x[a] * x[b];
      }
    }
  }

  // The largest violation of the optimality conditions.
  double violation(const std::vector<double>& w, const std::vector<double>& gradient) const {
    double largest = 0.0;
    for (size_t j = 0; j < w.size(); ++j) {
      const double here = w[j] != 0.0 ? std::abs(gradient[j] + std::copysign(l1_, w[j]))
                                      : std::max(std::abs(gradient[j]) - l1_, 0.0);
      largest = std::max(largest, here);
    }
    return largest;
  }

  // Minimises the quadratic model plus penalty by coordinate descent; returns the new point.
  std::vector<double> model_minimum(const std::vector<double>& w, const std::vector<double>& gradient,
                                    const std::vector<double>& hessian) const {
    const int64_t n = data_.num_features;
    std::vector<double> point = w;
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      double change = 0.0;
      double size = 0.0;
      for (int64_t j = 0; j < n; ++j) {
        const double curvature = hessian[j * n + j];
        if (curvature <= 0.0) continue;  // a feature without effect, or underflow: leave it
        double slope = gradient[j];
        for (int64_t k = 0; k < n; ++k) slope += hessian[j * n + k] * (point[k] - w[k]);
        const double next = soft_threshold(point[j] - slope / curvature, l1_ / curvature);
        change = std::max(change, std::abs(next - point[j]));
        size = std::max(size, std::abs(next));
        point[j] = next;
      }
      if (change <= 1e-15 * (1.0 + size)) break;
    }
    return point;
  }

  // Gradients below this are rounding.
  double tolerance() const {
    double mass = 0.0;
    for (int64_t i = 0; i < data_.num_rows(); ++i) {
      double largest = 0.0;
      for (int64_t j = 0; j < data_.num_features; ++j) {
        largest = std::max(largest, std::abs(data_.features[i * data_.num_features + j]));
      }
      mass += data_.weights[i] * largest;
    }
    return 1e-12 * std::max(scale_ * mass, l1_);
  }

 private:
  double logit_of(int64_t row, const std::vector<double>& w) const {
    const double* x = &data_.features[row * data_.num_features];
    double logit = 0.0;
    for (int64_t j = 0; j < data_.num_features; ++j) logit += x[j] * w[j];
    return logit;
  }

  const LogisticData& data_;
  double scale_;
  double l1_;
};

}  // namespace

void LogisticData::add_row(const std::vector<double>& row, double target, double weight) {
  SMOE_ASSERT(std::ssize(row) == num_features);
  features.insert(features.end(), row.begin(), row.end());
  targets.push_back(target);
  weights.push_back(weight);
}

double sigmoid(double logit) {
  if (logit >= 0.0) return 1.0 / (1.0 + std::exp(-logit));
  const double e = std::exp(logit);
  return e / (1.0 + e);
}

std::vector<double> fit_logistic(const LogisticData& data, double scale, double l1) {
  const Objective objective(data, scale, l1);
  const double tolerance = objective.tolerance();
  std::vector<double> w(data.num_features, 0.0);
  std::vector<double> gradient;
  std::vector<double> hessian;
  double value = objective.value(w);
  for (int step = 0; step < kMaxSteps; ++step) {
    objective.expand(w, gradient, hessian);
    if (objective.violation(w, gradient) <= tolerance) return w;
    const std::vector<double> target = objective.model_minimum(w, gradient, hessian);
    std::vector<double> next = w;
    double next_value = value;
    bool is_lower = false;
    for (double length = 1.0; length > 1e-10 && !is_lower; length *= 0.5) {
      for (size_t j = 0; j < w.size(); ++j) next[j] = w[j] + length * (target[j] - w[j]);
      next_value = objective.value(next);
      is_lower = next_value < value;
    }
    // No lower point in the direction of the minimum: what is left is rounding.
    if (!is_lower) break;
    w = next;
    value = next_value;
  }
  objective.expand(w, gradient, hessian);
  const double violation = objective.violation(w, gradient);
  SMOE_CHECK(NumericError, violation <= 1e4 * tolerance,
             "logistic regression of {} rows on {} features does not converge: the gradient is still {}",
             data.num_rows(), data.num_features, violation);
  return w;
}

}  // namespace smoe
