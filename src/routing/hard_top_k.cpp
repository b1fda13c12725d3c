#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "row_tasks.h"
#include "score_checks.h"
#include "smoe/core/error.h"
#include "smoe/routing/host_to_device.h"
#include "smoe/routing/soft_top_k.h"
#include "smoe/routing/soft_top_k_solvers.h"

namespace smoe {
namespace {

// The first `count` of a stable descending sort, without sorting: everything above the count-th largest
// score, then scores equal to it from the lowest index on.
template <typename Scalar>
void select_row(const Scalar* scores, float* mask, int64_t size, int64_t count,
                std::vector<Scalar>& scratch) {
  std::fill_n(mask, size, 0.0F);
  if (count == 0) return;
  scratch.assign(scores, scores + size);
  std::nth_element(scratch.begin(), scratch.begin() + (count - 1), scratch.end(), std::greater<Scalar>());
  const Scalar threshold = scratch[static_cast<size_t>(count - 1)];
  int64_t num_free = count;
  for (int64_t i = 0; i < size; ++i) {
    if (scores[i] > threshold) {
      mask[i] = 1.0F;
      --num_free;
    }
  }
  for (int64_t i = 0; num_free > 0; ++i) {
    if (scores[i] == threshold) {
      mask[i] = 1.0F;
      --num_free;
    }
  }
}

at::Tensor select_by_loops(const at::Tensor& scores_RE, const at::Tensor& counts_R) {
  const at::Tensor contiguous_RE = scores_RE.contiguous();
  const int64_t size = scores_RE.size(1);
  at::Tensor mask_RE = at::empty(scores_RE.sizes(), at::kFloat);
  AT_DISPATCH_FLOATING_TYPES(scores_RE.scalar_type(), "hard_top_k", [&] {
    const scalar_t* const scores = contiguous_RE.const_data_ptr<scalar_t>();
    const int64_t* const counts = counts_R.const_data_ptr<int64_t>();
    float* const mask = mask_RE.mutable_data_ptr<float>();
    at::parallel_for(0, scores_RE.size(0), rows_per_task(size), [&](int64_t begin, int64_t end) {
      std::vector<scalar_t> scratch;
      for (int64_t row = begin; row < end; ++row) {
        select_row(scores + row * size, mask + row * size, size, counts[row], scratch);
      }
    });
  });
  return mask_RE;
}

}  // namespace

at::Tensor hard_top_k_by_sort(const at::Tensor& scores_RE, const at::Tensor& counts_R) {
  // Adding zero turns -0 into +0: a radix sort would otherwise rank them apart.
  const at::Tensor order_RE =
      std::get<1>(at::sort(scores_RE + 0.0, /*stable=*/true, /*dim=*/1, /*descending=*/true));
  const at::Tensor counts_R1 = copy_to_device(counts_R, scores_RE.device()).unsqueeze(1);
  const at::Tensor rank_E = at::arange(scores_RE.size(1), order_RE.options());
  // What check_scores refuses on the CPU. A sort takes NaN for the largest value and would hide it.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor bad_R1 = at::logical_not(scores_RE < kInfinity).any(1, /*keepdim=*/true);
  const at::Tensor allowed_R1 = (scores_RE > -kInfinity).sum(1, /*keepdim=*/true);
  const at::Tensor value_R1 = at::where(at::logical_or(bad_R1, allowed_R1 < counts_R1),
                                        std::numeric_limits<double>::quiet_NaN(), 1.0);
  const at::Tensor selected_RE = at::where(rank_E < counts_R1, value_R1, 0.0).to(at::kFloat);
  return at::empty(scores_RE.sizes(), selected_RE.options()).scatter_(1, order_RE, selected_RE);
}

at::Tensor hard_top_k(const at::Tensor& scores_RE, const at::Tensor& counts_R) {
  SMOE_ASSERT(counts_R.is_cpu() && counts_R.scalar_type() == at::kLong);
  const at::Tensor scores_detached_RE = scores_RE.detach();
  const at::Tensor counts_contiguous_R = counts_R.contiguous();
  check_scores(scores_detached_RE, counts_contiguous_R.to(at::kDouble), "hard_top_k");
  return scores_detached_RE.is_cpu() ? select_by_loops(scores_detached_RE, counts_contiguous_R)
                                     : hard_top_k_by_sort(scores_detached_RE, counts_contiguous_R);
}

}  // namespace smoe
