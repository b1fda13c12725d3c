// pass@k: the chance that at least one of k samples of a problem is right, estimated without bias from n >= k
// samples of which c are right (Chen et al. 2021, "Evaluating Large Language Models Trained on Code").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace smoe {

// Samples of one problem and how many of them passed.
struct SampleCounts {
  int64_t num_samples = 0;
  int64_t num_correct = 0;
};

// 1 - C(n-c, k) / C(n, k), to a few units in the last place also where the result is tiny. Throws ConfigError
// unless 0 <= c <= n and 1 <= k <= n.
double pass_at_k(SampleCounts counts, int64_t k);

// One value a problem; their mean is the benchmark's score. Throws ConfigError naming the problem if one has
// fewer than k samples.
std::vector<double> pass_at_k(std::span<const SampleCounts> problems, int64_t k);

}  // namespace smoe
