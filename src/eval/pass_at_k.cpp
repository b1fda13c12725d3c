#include "smoe/eval/pass_at_k.h"

#include <cmath>

#include "smoe/core/error.h"

namespace smoe {

double pass_at_k(SampleCounts counts, int64_t k) {
  const int64_t n = counts.num_samples;
  const int64_t c = counts.num_correct;
  SMOE_CHECK(ConfigError, c >= 0 && c <= n, "pass@k: {} correct samples of {}: allowed are 0 to {}", c, n, n);
  SMOE_CHECK(
      ConfigError, k >= 1 && k <= n,
      "pass@{} of {} samples: k must be at least 1 and at most the samples of every problem; draw more "
      "samples or ask for a smaller k",
      k, n);
  if (n - c < k) {
    return 1.0;
  }
  // The product of (1 - k/i), as a sum of logarithms: 1 - product would lose the digits of small results.
  double log_product = 0.0;
  for (int64_t i = n - c + 1; i <= n; ++i) {
    log_product += std::log1p(-static_cast<double>(k) / static_cast<double>(i));
  }
  return c == 0 ? 0.0 : -std::expm1(log_product);
}

std::vector<double> pass_at_k(std::span<const SampleCounts> problems, int64_t k) {
  std::vector<double> values;
  values.reserve(problems.size());
  for (size_t index = 0; index < problems.size(); ++index) {
    SMOE_CHECK(ConfigError, problems[index].num_samples >= k,
               "pass@{}: problem {} has only {} samples; draw at least {} or ask for a smaller k", k,
               index + 1, problems[index].num_samples, k);
    values.push_back(pass_at_k(problems[index], k));
  }
  return values;
}

}  // namespace smoe
