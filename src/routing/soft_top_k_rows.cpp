#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "row_tasks.h"
#include "smoe/core/error.h"
#include "smoe/routing/soft_top_k_solvers.h"
#include "soft_top_k_kernels.h"

// Everything here relies on IEEE infinities: do not compile with -ffast-math.
namespace smoe {
namespace {

struct Split {
  double sum_below = 0;  // of the entries that are at most the threshold
  double num_above = 0;  // entries over it
};

Split split_row(const std::vector<double>& values, double threshold) {
  Split split;
  for (const double value : values) {
    split.sum_below += value > threshold ? 0.0 : value;
    split.num_above += value > threshold ? 1.0 : 0.0;
  }
  return split;
}

// Rewrites the row as exp((score - base) / temperature), base being the largest score that is not saturated.
// Needed where the gap between saturated and other scores is so wide that the others have underflowed.
void rebase_row(const std::vector<double>& scores, std::vector<double>& exponentials, double temperature,
                double threshold) {
  double base = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!(exponentials[i] > threshold)) base = std::max(base, scores[i]);
  }
  for (size_t i = 0; i < scores.size(); ++i) exponentials[i] = std::exp((scores[i] - base) / temperature);
}

// The active set of solve_entropy_rows for a row that it has left alone: of any scores, but slow. The
// threshold exp(-shift) falls from round to round towards its final value, so that the saturated set only
// grows and the loop ends: at the latest when every entry is saturated.
std::vector<double> solve_entropy_row(const std::vector<double>& scores, double sum, double temperature) {
  constexpr double kTooSmall = 1e-280;  // entries that matter must not be subnormal
  double threshold = std::numeric_limits<double>::infinity();
  std::vector<double> row(scores.size(), -1.0);  // at most the threshold
  rebase_row(scores, row, temperature, threshold);
  Split split = split_row(row, threshold);
  while (true) {
    const double remainder = sum - split.num_above;
    if (!(remainder > 0)) {  // rounding has saturated as many entries as the sum allows
      for (double& value : row) value = value > threshold ? 1.0 : 0.0;
      return row;
    }
    if (split.sum_below < kTooSmall) {
      rebase_row(scores, row, temperature, threshold);
      threshold = 1.0;
      split = split_row(row, threshold);
    }
    threshold = split.sum_below / remainder;
    const Split next = split_row(row, threshold);
    if (next.num_above <= split.num_above) break;  // fewer: rounding may take an entry back
    split = next;
  }
  for (double& value : row) value = value > threshold ? 1.0 : value / threshold;
  return row;
}

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

// Newton's method on sum_i sigmoid(x_i + shift) = sum, x_i = (s_i - max) / temperature, with bisection where
// it would leave the bracket or converge slowly (far apart scores make the function a staircase). In float64
// throughout: x can be large, and its rounding would show in lambda.
template <typename Scalar>
void solve_sigmoid_row(const Scalar* scores, Scalar* row, int64_t size, double sum, double num_allowed,
                       double temperature) {
  constexpr int kMaxRounds = 200;
  const double maximum = *std::max_element(scores, scores + size);
  double smallest = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (std::isfinite(scores[i])) smallest = std::min(smallest, (scores[i] - maximum) / temperature);
  }
  double low = std::log(sum / (num_allowed - sum));  // all scores at the maximum would need this shift
  double high = low - smallest;
  double shift = low;
  double last_step = high - low;
  for (int round = 0; round < kMaxRounds; ++round) {
    double excess = -sum;
    double slope = 0;
    for (int64_t i = 0; i < size; ++i) {
      const double value = sigmoid((scores[i] - maximum) / temperature + shift);
      excess += value;
      slope += value * (1 - value);
    }
    if (std::abs(excess) <= 1e-14 * num_allowed) break;
    (excess < 0 ? low : high) = shift;
    double next = shift - excess / slope;
    if (!(next > low && next < high) || std::abs(2 * excess) > std::abs(last_step * slope)) {
      next = low + (high - low) / 2;
    }
    last_step = next - shift;
    if (next == shift || low >= high) break;
    shift = next;
  }
  for (int64_t i = 0; i < size; ++i) {
    row[i] = static_cast<Scalar>(sigmoid((scores[i] - maximum) / temperature + shift));
  }
}

// Sum 0 and sum = number of allowed experts have no finite shift; they are set directly.
template <typename Scalar>
bool solve_extreme_row(const Scalar* scores, Scalar* row, int64_t size, double sum, double num_allowed) {
  if (sum > 0 && sum < num_allowed) return false;
  const Scalar value = sum > 0 ? Scalar{1} : Scalar{0};
  for (int64_t i = 0; i < size; ++i) {
    row[i] = scores[i] > -std::numeric_limits<Scalar>::infinity() ? value : Scalar{0};
  }
  return true;
}

template <typename Scalar>
double count_allowed(const Scalar* scores, int64_t size) {
  int64_t count = 0;
  for (int64_t i = 0; i < size; ++i) count += scores[i] > -std::numeric_limits<Scalar>::infinity();
  return static_cast<double>(count);
}

// Rows [begin, end) of scores and lambda, `size` experts each.
template <typename Scalar>
void solve_entropy_range(const Scalar* scores, const double* sums, Scalar* lambda, int64_t num_rows,
                         int64_t size, double temperature) {
  for (const int64_t row : solve_entropy_rows(scores, sums, lambda, num_rows, size, temperature)) {
    const Scalar* const in = scores + row * size;
    Scalar* const out = lambda + row * size;
    if (solve_extreme_row(in, out, size, sums[row], count_allowed(in, size))) continue;
    const std::vector<double> solved =
        solve_entropy_row(std::vector<double>(in, in + size), sums[row], temperature);
    std::transform(solved.begin(), solved.end(), out,
                   [](double value) { return static_cast<Scalar>(value); });
  }
}

template <typename Scalar>
void solve_sigmoid_range(const Scalar* scores, const double* sums, Scalar* lambda, int64_t num_rows,
                         int64_t size, double temperature) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const Scalar* const in = scores + row * size;
    Scalar* const out = lambda + row * size;
    const double num_allowed = count_allowed(in, size);
    if (solve_extreme_row(in, out, size, sums[row], num_allowed)) continue;
    solve_sigmoid_row(in, out, size, sums[row], num_allowed, temperature);
  }
}

}  // namespace

at::Tensor soft_top_k_forward_rows(const at::Tensor& scores_RE, const at::Tensor& sums_R, double temperature,
                                   SoftTopKKind kind) {
  SMOE_ASSERT(scores_RE.is_cpu() && sums_R.is_cpu() && sums_R.is_contiguous());
  const at::Tensor contiguous_RE = scores_RE.contiguous();
  const int64_t size = contiguous_RE.size(1);
  at::Tensor lambda_RE = at::empty_like(contiguous_RE);
  AT_DISPATCH_FLOATING_TYPES(contiguous_RE.scalar_type(), "soft_top_k_forward_rows", [&] {
    const scalar_t* const scores = contiguous_RE.const_data_ptr<scalar_t>();
    const double* const sums = sums_R.const_data_ptr<double>();
    scalar_t* const lambda = lambda_RE.mutable_data_ptr<scalar_t>();
    const auto solve =
        kind == SoftTopKKind::kEntropy ? solve_entropy_range<scalar_t> : solve_sigmoid_range<scalar_t>;
    at::parallel_for(0, contiguous_RE.size(0), rows_per_task(size), [&](int64_t begin, int64_t end) {
      solve(scores + begin * size, sums + begin, lambda + begin * size, end - begin, size, temperature);
    });
  });
  return lambda_RE;
}

at::Tensor soft_top_k_backward_rows(const at::Tensor& gradient_RE, const at::Tensor& lambda_RE,
                                    double temperature, SoftTopKKind kind) {
  const at::Tensor gradient_contiguous_RE = gradient_RE.contiguous();
  at::Tensor scores_gradient_RE = at::empty_like(lambda_RE);
  const int64_t size = lambda_RE.size(1);
  AT_DISPATCH_FLOATING_TYPES(lambda_RE.scalar_type(), "soft_top_k_backward_rows", [&] {
    const scalar_t* const gradient = gradient_contiguous_RE.const_data_ptr<scalar_t>();
    const scalar_t* const lambda = lambda_RE.const_data_ptr<scalar_t>();
    scalar_t* const out = scores_gradient_RE.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, lambda_RE.size(0), rows_per_task(size), [&](int64_t begin, int64_t end) {
      soft_top_k_backward(gradient + begin * size, lambda + begin * size, out + begin * size, end - begin,
                          size, temperature, kind);
    });
  });
  return scores_gradient_RE;
}

}  // namespace smoe
