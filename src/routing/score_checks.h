// Checks what the top-k operators are given, before anything is computed from it.
//
// Shape legend: R rows, E experts.
#pragma once

#include <ATen/ATen.h>

#include <string_view>

namespace smoe {

// Throws std::logic_error on wrong shapes or dtypes, and NumericError, with `operation` and the first
// offending row in the message, if a score is NaN or +inf, a sum is not in [0, E], or a row has fewer
// scores above -inf than its sum. `sums_R` float64 [R] on the CPU. Scores on a GPU are not looked at, since
// the host would have to wait for them; there hard_top_k passes the fault on.
void check_scores(const at::Tensor& scores_RE, const at::Tensor& sums_R, std::string_view operation);

}  // namespace smoe
