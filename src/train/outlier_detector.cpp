#include "smoe/train/outlier_detector.h"

#include <cmath>
#include <numeric>

#include "smoe/core/error.h"

namespace smoe {
namespace {

bool exceeds(const std::deque<double>& window, double value, double sigmas) {
  const double count = static_cast<double>(window.size());
  const double mean = std::accumulate(window.begin(), window.end(), 0.0) / count;
  double variance = 0.0;
  for (const double seen : window) variance += (seen - mean) * (seen - mean) / count;
  return value > mean + sigmas * std::sqrt(variance);
}

}  // namespace

OutlierDetector::OutlierDetector(int64_t window, double sigmas)
    : window_(static_cast<size_t>(window)), sigmas_(sigmas) {
  SMOE_ASSERT(window >= 2 && sigmas > 0.0);
}

bool OutlierDetector::is_outlier(double loss, double gradient_norm) const {
  if (losses_.size() < window_ / 2) return false;
  return exceeds(losses_, loss, sigmas_) || exceeds(gradient_norms_, gradient_norm, sigmas_);
}

bool OutlierDetector::is_loss_outlier(double loss) const {
  return losses_.size() >= window_ / 2 && exceeds(losses_, loss, sigmas_);
}

void OutlierDetector::add(double loss, double gradient_norm) {
  losses_.push_back(loss);
  gradient_norms_.push_back(gradient_norm);
  if (losses_.size() <= window_) return;
  losses_.pop_front();
  gradient_norms_.pop_front();
}

void OutlierDetector::restore(const std::vector<double>& losses, const std::vector<double>& gradient_norms) {
  SMOE_ASSERT(losses.size() == gradient_norms.size());
  losses_.assign(losses.begin(), losses.end());
  gradient_norms_.assign(gradient_norms.begin(), gradient_norms.end());
  // A shorter window may have been configured since.
  while (losses_.size() > window_) {
    losses_.pop_front();
    gradient_norms_.pop_front();
  }
}

}  // namespace smoe
