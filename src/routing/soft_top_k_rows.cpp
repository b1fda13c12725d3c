#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "row_tasks.h"
#include "smoe/core/error.h"
#include "smoe/routing/soft_top_k_solvers.h"

// Everything here relies on IEEE infinities: do not compile with -ffast-math.
namespace smoe {
namespace {

// Independent partial sums, which let the compiler vectorise a reduction without reordering it freely.
constexpr int64_t kLanes = 8;

template <typename Scalar>
Scalar row_maximum(const Scalar* values, int64_t size) {
  std::array<Scalar, kLanes> lanes;
  lanes.fill(-std::numeric_limits<Scalar>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
  }
  for (; i < size; ++i) lanes[0] = std::max(lanes[0], values[i]);
  return *std::max_element(lanes.begin(), lanes.end());
}

template <typename Scalar>
void subtract_maximum(const Scalar* scores, Scalar* row, int64_t size, double temperature) {
  const Scalar maximum = row_maximum(scores, size);
  for (int64_t i = 0; i < size; ++i) row[i] = (scores[i] - maximum) / static_cast<Scalar>(temperature);
}

struct Split {
  double sum_below = 0;  // of the entries that are at most the threshold
  double num_above = 0;  // entries over it
};

template <typename Scalar>
Split split_row(const Scalar* values, int64_t size, double threshold) {
  std::array<double, kLanes> sums{};
  std::array<double, kLanes> counts{};
  const auto add = [&](int64_t i, int64_t lane) {
    const double value = values[i];
    sums[lane] += value > threshold ? 0.0 : value;
    counts[lane] += value > threshold ? 1.0 : 0.0;
  };
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) add(i + j, j);
  }
  for (; i < size; ++i) add(i, 0);
  Split split;
  for (int64_t j = 0; j < kLanes; ++j) {
    split.sum_below += sums[j];
    split.num_above += counts[j];
  }
  return split;
}

// Rewrites the row as exp((score - base) / temperature), base being the largest score that is not saturated.
// Needed where the gap between saturated and other scores is so wide that the others have underflowed.
template <typename Scalar>
void rebase_row(const Scalar* scores, Scalar* exponentials, int64_t size, double temperature,
                double threshold) {
  Scalar base = -std::numeric_limits<Scalar>::infinity();
  for (int64_t i = 0; i < size; ++i) {
    if (!(exponentials[i] > threshold)) base = std::max(base, scores[i]);
  }
  for (int64_t i = 0; i < size; ++i) {
    exponentials[i] = std::exp((scores[i] - base) / static_cast<Scalar>(temperature));
  }
}

// Active set. `row` holds e_i = exp((s_i - max) / temperature) and becomes lambda_i = min(1, e_i /
// threshold). The threshold exp(-shift) falls from round to round towards its final value, so that the
// saturated set only grows and the loop ends: at the latest when every entry is saturated.
template <typename Scalar>
void solve_entropy_row(const Scalar* scores, Scalar* row, int64_t size, double sum, double temperature) {
  // Below this the row is rebased: the rounding of a large quotient shows in float32, and entries that matter
  // must not be subnormal in either type.
  constexpr double kTooSmall = sizeof(Scalar) == 4 ? 1e-12 : 1e-280;
  double threshold = std::numeric_limits<double>::infinity();
  Split split = split_row(row, size, threshold);
  while (true) {
    const double remainder = sum - split.num_above;
    if (!(remainder > 0)) {  // rounding has saturated as many entries as the sum allows
      for (int64_t i = 0; i < size; ++i) row[i] = row[i] > threshold ? Scalar{1} : Scalar{0};
      return;
    }
    if (split.sum_below < kTooSmall) {
      rebase_row(scores, row, size, temperature, threshold);
      threshold = 1.0;
      split = split_row(row, size, threshold);
    }
    threshold = split.sum_below / remainder;
    const Split next = split_row(row, size, threshold);
    if (next.num_above <= split.num_above) break;  // fewer: rounding may take an entry back
    split = next;
  }
  for (int64_t i = 0; i < size; ++i) {
    row[i] = row[i] > threshold ? Scalar{1} : static_cast<Scalar>(row[i] / threshold);
  }
}

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

// Newton's method on sum_i sigmoid(x_i + shift) = sum, x_i = (s_i - max) / temperature, with bisection where
// it would leave the bracket or converge slowly (far apart scores make the function a staircase). In float64
// throughout: x can be large, and its rounding would show in lambda.
template <typename Scalar>
void solve_sigmoid_row(const Scalar* scores, Scalar* row, int64_t size, double sum, double num_allowed,
                       double temperature) {
  constexpr int kMaxRounds = 200;
  const double maximum = row_maximum(scores, size);
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

// Both kinds have the implicit gradient w_i * (g_i - sum_j w_j g_j / sum_j w_j) / temperature; they differ in
// w.
template <typename Scalar>
Scalar gradient_weight(Scalar lambda, SoftTopKKind kind) {
  if (kind == SoftTopKKind::kSigmoid) return lambda * (Scalar{1} - lambda);
  return lambda < Scalar{1} ? lambda : Scalar{0};
}

template <SoftTopKKind kind, typename Scalar>
void backward_row(const Scalar* gradient, const Scalar* lambda, Scalar* out, int64_t size,
                  double temperature) {
  std::array<double, kLanes> weights{};
  std::array<double, kLanes> weighted{};
  const auto add = [&](int64_t i, int64_t lane) {
    const double weight = gradient_weight(lambda[i], kind);
    weights[lane] += weight;
    weighted[lane] += weight * gradient[i];
  };
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) add(i + j, j);
  }
  for (; i < size; ++i) add(i, 0);
  double weight = 0;
  double mean = 0;
  for (int64_t j = 0; j < kLanes; ++j) {
    weight += weights[j];
    mean += weighted[j];
  }
  if (!(weight > 0)) {
    std::fill_n(out, size, Scalar{0});
    return;
  }
  const Scalar mean_gradient = static_cast<Scalar>(mean / weight);
  const Scalar scale = static_cast<Scalar>(1 / temperature);
  for (int64_t j = 0; j < size; ++j) {
    out[j] = gradient_weight(lambda[j], kind) * (gradient[j] - mean_gradient) * scale;
  }
}

}  // namespace

at::Tensor soft_top_k_forward_rows(const at::Tensor& scores_RE, const at::Tensor& sums_R, double temperature,
                                   SoftTopKKind kind) {
  SMOE_ASSERT(scores_RE.is_cpu() && sums_R.is_cpu() && sums_R.is_contiguous());
  const at::Tensor contiguous_RE = scores_RE.contiguous();
  const int64_t num_rows = contiguous_RE.size(0);
  const int64_t size = contiguous_RE.size(1);
  at::Tensor lambda_RE = at::empty_like(contiguous_RE);
  AT_DISPATCH_FLOATING_TYPES(contiguous_RE.scalar_type(), "soft_top_k_forward_rows", [&] {
    const scalar_t* const scores = contiguous_RE.const_data_ptr<scalar_t>();
    const double* const sums = sums_R.const_data_ptr<double>();
    scalar_t* const lambda = lambda_RE.mutable_data_ptr<scalar_t>();
    if (kind == SoftTopKKind::kEntropy) {
      at::parallel_for(0, num_rows, rows_per_task(size), [&](int64_t begin, int64_t end) {
        for (int64_t offset = begin * size; offset < end * size; offset += size) {
          subtract_maximum(scores + offset, lambda + offset, size, temperature);
        }
      });
      // One call over all rows, because ATen's exponential is vectorised and the standard library's is not.
      lambda_RE.exp_();
    }
    at::parallel_for(0, num_rows, rows_per_task(size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const scalar_t* const in = scores + row * size;
        scalar_t* const out = lambda + row * size;
        const double num_allowed = count_allowed(in, size);
        if (solve_extreme_row(in, out, size, sums[row], num_allowed)) continue;
        if (kind == SoftTopKKind::kEntropy) {
          solve_entropy_row(in, out, size, sums[row], temperature);
        } else {
          solve_sigmoid_row(in, out, size, sums[row], num_allowed, temperature);
        }
      }
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
      for (int64_t offset = begin * size; offset < end * size; offset += size) {
        if (kind == SoftTopKKind::kEntropy) {
          backward_row<SoftTopKKind::kEntropy>(gradient + offset, lambda + offset, out + offset, size,
                                               temperature);
        } else {
          backward_row<SoftTopKKind::kSigmoid>(gradient + offset, lambda + offset, out + offset, size,
                                               temperature);
        }
      }
    });
  });
  return scores_gradient_RE;
}

}  // namespace smoe
