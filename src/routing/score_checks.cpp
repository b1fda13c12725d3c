#include "score_checks.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "row_tasks.h"
#include "smoe/core/error.h"
#include "smoe/core/vector_clones.h"

namespace smoe {
namespace {

// Counts in integers as wide as the scores, for the sake of vector code.
template <typename Scalar, typename Count>
SMOE_INLINE bool scores_allow(const Scalar* scores, int64_t num_experts, double sum) {
  constexpr Scalar kInfinity = std::numeric_limits<Scalar>::infinity();
  Count num_bad = 0;
  Count num_allowed = 0;
#pragma omp simd reduction(+ : num_bad, num_allowed)
  for (int64_t i = 0; i < num_experts; ++i) {
    num_bad += scores[i] < kInfinity ? 0 : 1;  // NaN compares false, too
    num_allowed += scores[i] > -kInfinity ? 1 : 0;
  }
  return num_bad == 0 && static_cast<double>(num_allowed) >= sum;
}

SMOE_VECTOR_CLONES bool row_is_usable(const float* scores, int64_t num_experts, double sum) {
  return scores_allow<float, int32_t>(scores, num_experts, sum);
}
SMOE_VECTOR_CLONES bool row_is_usable(const double* scores, int64_t num_experts, double sum) {
  return scores_allow<double, int64_t>(scores, num_experts, sum);
}

// Index of the first row that cannot be used, or R.
int64_t first_unusable_row(const at::Tensor& scores_RE, const at::Tensor& sums_R) {
  const int64_t num_rows = scores_RE.size(0);
  const at::Tensor contiguous_RE = scores_RE.contiguous();
  const int64_t num_experts = scores_RE.size(1);
  std::atomic<int64_t> first{num_rows};
  AT_DISPATCH_FLOATING_TYPES(contiguous_RE.scalar_type(), "check_scores", [&] {
    const scalar_t* const scores = contiguous_RE.const_data_ptr<scalar_t>();
    const double* const sums = sums_R.const_data_ptr<double>();
    at::parallel_for(0, num_rows, rows_per_task(num_experts), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        if (row_is_usable(scores + row * num_experts, num_experts, sums[row])) continue;
        int64_t seen = first.load();
        while (row < seen && !first.compare_exchange_weak(seen, row)) {
        }
        return;
      }
    });
  });
  return first.load();
}

[[noreturn]] void reject_row(const at::Tensor& scores_RE, int64_t row, double sum,
                             std::string_view operation) {
  const at::Tensor scores_E = scores_RE.select(0, row).to(at::kCPU, at::kDouble).contiguous();
  const double* const scores = scores_E.const_data_ptr<double>();
  int64_t num_allowed = 0;
  for (int64_t i = 0; i < scores_E.numel(); ++i) {
    SMOE_CHECK(
        NumericError, scores[i] < std::numeric_limits<double>::infinity(),
        "{}: the score in row {}, column {} is {}; scores must be finite, or -inf for a forbidden expert. "
        "Look for a diverged router or non-finite hidden states",
        operation, row, i, scores[i]);
    num_allowed += scores[i] > -std::numeric_limits<double>::infinity();
  }
  throw NumericError(fmt::format(
      "{}: row {} has to select {} of {} experts, but only {} have a score above -inf. Lower the budget "
      "or forbid fewer experts",
      operation, row, sum, scores_E.numel(), num_allowed));
}

}  // namespace

void check_scores(const at::Tensor& scores_RE, const at::Tensor& sums_R, std::string_view operation) {
  SMOE_ASSERT(scores_RE.dim() == 2 && sums_R.dim() == 1 && sums_R.size(0) == scores_RE.size(0));
  SMOE_ASSERT(scores_RE.scalar_type() == at::kFloat || scores_RE.scalar_type() == at::kDouble);
  SMOE_ASSERT(sums_R.is_cpu() && sums_R.scalar_type() == at::kDouble && sums_R.is_contiguous());
  const double* const sums = sums_R.const_data_ptr<double>();
  const int64_t num_experts = scores_RE.size(1);
  for (int64_t row = 0; row < scores_RE.size(0); ++row) {
    SMOE_CHECK(NumericError, sums[row] >= 0 && sums[row] <= static_cast<double>(num_experts),
               "{}: row {} is asked to sum to {}; the allowed range is 0 to the {} experts of the row",
               operation, row, sums[row], num_experts);
  }
  if (!scores_RE.is_cpu()) return;
  const int64_t row = first_unusable_row(scores_RE.detach(), sums_R);
  if (row < scores_RE.size(0)) reject_row(scores_RE.detach(), row, sums[row], operation);
}

}  // namespace smoe
