// Decides whether the loss or the gradient norm of a step is an outlier of the steps before it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace smoe {

class OutlierDetector {
 public:
  // A value is an outlier if it exceeds the mean of the last `window` values by more than `sigmas` standard
  // deviations. Nothing is judged before half a window has been seen.
  OutlierDetector(int64_t window, double sigmas);

  bool is_outlier(double loss, double gradient_norm) const;
  // Judges the loss alone.
  bool is_loss_outlier(double loss) const;
  // Every step counts, skipped ones too: a level that has really shifted is accepted after a while.
  void add(double loss, double gradient_norm);

  // The values in the window, oldest first: losses, then gradient norms.
  std::vector<double> losses() const { return {losses_.begin(), losses_.end()}; }
  std::vector<double> gradient_norms() const { return {gradient_norms_.begin(), gradient_norms_.end()}; }
  void restore(const std::vector<double>& losses, const std::vector<double>& gradient_norms);

 private:
  size_t window_;
  double sigmas_;
  std::deque<double> losses_;
  std::deque<double> gradient_norms_;
};

}  // namespace smoe
