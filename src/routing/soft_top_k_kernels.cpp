// Eight rows are solved side by side, one in each lane of a vector: sums over a row need no reduction across
// lanes, and no row waits for the division or the branch of another. Everything between scores and lambda is
// float64, in which neither the sums nor the exponents of far apart scores lose digits that float32 could
// show.
//
// Everything here relies on IEEE infinities: do not compile with -ffast-math.
#include "soft_top_k_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "smoe/core/vector_clones.h"

// Vectors pass only between functions that are inlined, so that no calling convention matters.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace smoe {
namespace {

constexpr int64_t kLanes = 8;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));
using LaneMask = int64_t __attribute__((vector_size(kLanes * sizeof(int64_t))));

// The scores of one expert in eight rows, later their exponentials.
struct alignas(kLanes * sizeof(double)) Entry {
  double row[kLanes];
};

SMOE_INLINE Lanes in_all_lanes(double value) {
  return Lanes{value, value, value, value, value, value, value, value};
}

SMOE_INLINE Lanes load(const Entry& entry) {
  Lanes lanes;
  std::memcpy(&lanes, &entry, sizeof(lanes));
  return lanes;
}

SMOE_INLINE void store(const Lanes& lanes, Entry& entry) { std::memcpy(&entry, &lanes, sizeof(lanes)); }

SMOE_INLINE bool any(const LaneMask& mask) {
  int64_t bits = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) bits |= mask[lane];
  return bits != 0;
}

// exp(x) = 2^n * exp(r) for x <= 0, with |r| <= log(2)/2 and the Taylor polynomial of exp(r): relative error
// below 6e-9 for float32 results and 3e-16 for float64. 0 where the result would leave the normal range.
template <class Scalar>
SMOE_INLINE Lanes exponential_lanes(Lanes x) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it leaves round(value) in the low bits
  x = x < -745.0 ? in_all_lanes(-745.0) : x;
  const Lanes shifted = x * 1.4426950408889634 + kRound;
  const Lanes n = shifted - kRound;
  const Lanes r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  Lanes p = in_all_lanes(1.0 / 5040);
  if constexpr (sizeof(Scalar) == sizeof(double)) {
    p = r * (1.0 / 479001600) + 1.0 / 39916800;
    for (const double coefficient : {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040}) {
      p = p * r + coefficient;
    }
  }
  for (const double coefficient : {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0}) {
    p = p * r + coefficient;
  }
  const LaneMask exponent = reinterpret_cast<LaneMask>(shifted) - std::bit_cast<int64_t>(kRound);
  const LaneMask power = (exponent + 1023) << 52;
  return exponent < -1021 ? in_all_lanes(0.0) : p * reinterpret_cast<Lanes>(power);
}

// Lanes beyond the last row repeat it.
template <class Scalar>
SMOE_INLINE void read_rows(const Scalar* scores, int64_t num_rows, int64_t size, Entry* entries) {
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const Scalar* row = scores + std::min(lane, num_rows - 1) * size;
    for (int64_t i = 0; i < size; ++i) entries[i].row[lane] = static_cast<double>(row[i]);
  }
}

// Where the eight rows stand. `threshold` is exp(-shift): lambda = min(1, exponential / threshold).
struct Progress {
  Lanes sum;          // that lambda shall have
  Lanes num_allowed;  // scores above -inf
  Lanes num_above;    // exponentials over the threshold
  Lanes sum_below;    // of the others
  Lanes threshold;
  LaneMask left_alone;  // all bits set, or none
};

template <class Scalar>
SMOE_INLINE void exponentiate(Entry* entries, int64_t size, double temperature, Progress& rows) {
  Lanes maximum = in_all_lanes(-kInfinity);
  Lanes num_allowed = in_all_lanes(0.0);
  for (int64_t i = 0; i < size; ++i) {
    const Lanes score = load(entries[i]);
    maximum = score > maximum ? score : maximum;
    num_allowed += score > -kInfinity ? in_all_lanes(1.0) : in_all_lanes(0.0);
  }
  const double factor = 1.0 / temperature;
  Lanes total = in_all_lanes(0.0);
  for (int64_t i = 0; i < size; ++i) {
    const Lanes exponential = exponential_lanes<Scalar>((load(entries[i]) - maximum) * factor);
    store(exponential, entries[i]);
    total += exponential;
  }
  rows.num_allowed = num_allowed;
  rows.sum_below = total;
}

// Active set: the threshold falls from round to round towards its final value, so that the saturated set only
// grows, and a row ends with the round that adds nothing to it.
SMOE_INLINE void find_thresholds(const Entry* entries, int64_t size, Progress& rows) {
  constexpr double kTooSmall = 1e-280;  // entries that matter must not be subnormal
  rows.num_above = in_all_lanes(0.0);
  rows.threshold = in_all_lanes(kInfinity);
  rows.left_alone = (rows.sum <= 0.0) | (rows.sum >= rows.num_allowed);
  LaneMask active = ~rows.left_alone;
  while (any(active)) {
    const Lanes remainder = rows.sum - rows.num_above;
    const LaneMask odd = active & ((remainder <= 0.0) | (rows.sum_below < kTooSmall));
    rows.left_alone |= odd;
    active &= ~odd;
    const Lanes threshold = active ? rows.sum_below / remainder : rows.threshold;
    Lanes sum = in_all_lanes(0.0);
    Lanes count = in_all_lanes(0.0);
    for (int64_t i = 0; i < size; ++i) {
      const Lanes value = load(entries[i]);
      sum += value > threshold ? in_all_lanes(0.0) : value;
      count += value > threshold ? in_all_lanes(1.0) : in_all_lanes(0.0);
    }
    rows.threshold = threshold;
    active &= count > rows.num_above;  // fewer: rounding may take an entry back
    rows.num_above = active ? count : rows.num_above;
    rows.sum_below = active ? sum : rows.sum_below;
  }
}

template <class Scalar>
SMOE_INLINE void write_rows(Entry* entries, int64_t size, const Progress& rows, int64_t num_rows,
                            Scalar* lambda) {
  const Lanes scale = 1.0 / rows.threshold;
  for (int64_t i = 0; i < size; ++i) {
    const Lanes scaled = load(entries[i]) * scale;
    store(scaled > 1.0 ? in_all_lanes(1.0) : scaled, entries[i]);
  }
  for (int64_t lane = 0; lane < num_rows; ++lane) {
    Scalar* row = lambda + lane * size;
    for (int64_t i = 0; i < size; ++i) row[i] = static_cast<Scalar>(entries[i].row[lane]);
  }
}

template <class Scalar>
SMOE_INLINE std::vector<int64_t> solve_rows(const Scalar* scores, const double* sums, Scalar* lambda,
                                            int64_t num_rows, int64_t size, double temperature) {
  std::vector<Entry> entries(static_cast<size_t>(size));
  std::vector<int64_t> left_alone;
  for (int64_t begin = 0; begin < num_rows; begin += kLanes) {
    const int64_t count = std::min(kLanes, num_rows - begin);
    Progress rows;
    for (int64_t lane = 0; lane < kLanes; ++lane) rows.sum[lane] = sums[begin + std::min(lane, count - 1)];
    read_rows(scores + begin * size, count, size, entries.data());
    exponentiate<Scalar>(entries.data(), size, temperature, rows);
    find_thresholds(entries.data(), size, rows);
    write_rows(entries.data(), size, rows, count, lambda + begin * size);
    for (int64_t lane = 0; lane < count; ++lane) {
      if (rows.left_alone[lane] != 0) left_alone.push_back(begin + lane);
    }
  }
  return left_alone;
}

// Both kinds have the implicit gradient w_i * (g_i - sum_j w_j g_j / sum_j w_j) / temperature; they differ in
// w.
template <SoftTopKKind kind, class Scalar>
SMOE_INLINE Scalar gradient_weight(Scalar lambda) {
  if (kind == SoftTopKKind::kSigmoid) return lambda * (Scalar{1} - lambda);
  return lambda < Scalar{1} ? lambda : Scalar{0};
}

struct WeightedSum {
  double weights = 0;
  double weighted = 0;
};

SMOE_INLINE Lanes load(const double* values) {
  Lanes lanes;
  std::memcpy(&lanes, values, sizeof(lanes));
  return lanes;
}
SMOE_INLINE Lanes load(const float* values) {
  using FloatLanes = float __attribute__((vector_size(kLanes * sizeof(float))));
  FloatLanes lanes;
  std::memcpy(&lanes, values, sizeof(lanes));
  return __builtin_convertvector(lanes, Lanes);
}

template <SoftTopKKind kind, class Scalar>
SMOE_INLINE WeightedSum weighted_sum(const Scalar* gradient, const Scalar* lambda, int64_t size) {
  Lanes weights = in_all_lanes(0.0);
  Lanes weighted = in_all_lanes(0.0);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Lanes value = load(lambda + i);
    const Lanes weight =
        kind == SoftTopKKind::kSigmoid ? value * (1.0 - value) : (value < 1.0 ? value : in_all_lanes(0.0));
    weights += weight;
    weighted += weight * load(gradient + i);
  }
  WeightedSum sum;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sum.weights += weights[lane];
    sum.weighted += weighted[lane];
  }
  for (; i < size; ++i) {
    const auto weight = static_cast<double>(gradient_weight<kind>(lambda[i]));
    sum.weights += weight;
    sum.weighted += weight * static_cast<double>(gradient[i]);
  }
  return sum;
}

template <SoftTopKKind kind, class Scalar>
SMOE_INLINE void backward_rows(const Scalar* gradient, const Scalar* lambda, Scalar* out, int64_t num_rows,
                               int64_t size, double temperature) {
  for (int64_t row = 0; row < num_rows; ++row, gradient += size, lambda += size, out += size) {
    const WeightedSum sum = weighted_sum<kind>(gradient, lambda, size);
    // Without unsaturated entries the row is constant.
    const auto mean = static_cast<Scalar>(sum.weights > 0 ? sum.weighted / sum.weights : 0.0);
    const auto scale = static_cast<Scalar>(sum.weights > 0 ? 1 / temperature : 0.0);
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) {
      out[i] = gradient_weight<kind>(lambda[i]) * (gradient[i] - mean) * scale;
    }
  }
}

template <class Scalar>
SMOE_INLINE void backward_rows(const Scalar* gradient, const Scalar* lambda, Scalar* out, int64_t num_rows,
                               int64_t size, double temperature, SoftTopKKind kind) {
  if (kind == SoftTopKKind::kEntropy) {
    backward_rows<SoftTopKKind::kEntropy>(gradient, lambda, out, num_rows, size, temperature);
  } else {
    backward_rows<SoftTopKKind::kSigmoid>(gradient, lambda, out, num_rows, size, temperature);
  }
}

}  // namespace

SMOE_VECTOR_CLONES std::vector<int64_t> solve_entropy_rows(const float* scores, const double* sums,
                                                           float* lambda, int64_t num_rows, int64_t size,
                                                           double temperature) {
  return solve_rows(scores, sums, lambda, num_rows, size, temperature);
}
SMOE_VECTOR_CLONES std::vector<int64_t> solve_entropy_rows(const double* scores, const double* sums,
                                                           double* lambda, int64_t num_rows, int64_t size,
                                                           double temperature) {
  return solve_rows(scores, sums, lambda, num_rows, size, temperature);
}
SMOE_VECTOR_CLONES void soft_top_k_backward(const float* gradient, const float* lambda,
                                            float* scores_gradient, int64_t num_rows, int64_t size,
                                            double temperature, SoftTopKKind kind) {
  backward_rows(gradient, lambda, scores_gradient, num_rows, size, temperature, kind);
}
SMOE_VECTOR_CLONES void soft_top_k_backward(const double* gradient, const double* lambda,
                                            double* scores_gradient, int64_t num_rows, int64_t size,
                                            double temperature, SoftTopKKind kind) {
  backward_rows(gradient, lambda, scores_gradient, num_rows, size, temperature, kind);
}

}  // namespace smoe
