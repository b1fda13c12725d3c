#include "smoe/analysis/mask_similarity.h"

#include <algorithm>
#include <numeric>

#include "smoe/core/error.h"
#include "smoe/core/random.h"

namespace smoe {

at::Tensor mask_cosine_QQ(const at::Tensor& mask_QLE) {
  const at::Tensor flat_QF = mask_QLE.flatten(1).to(at::kDouble);
  const at::Tensor length_Q1 = at::linalg_vector_norm(flat_QF, 2, 1, /*keepdim=*/true);
  const at::Tensor unit_QF = flat_QF / length_Q1.clamp_min(1e-300);
  return at::mm(unit_QF, unit_QF.t());
}

TopicSimilarity topic_similarity(const at::Tensor& cosine_QQ, const std::vector<int64_t>& topics) {
  SMOE_ASSERT(cosine_QQ.size(0) == static_cast<int64_t>(topics.size()));
  const at::Tensor cosine = cosine_QQ.contiguous();
  const double* values = cosine.const_data_ptr<double>();
  const size_t count = topics.size();
  TopicSimilarity similarity;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      const double value = values[i * count + j];
      if (topics[i] == topics[j]) {
        similarity.within += value;
        ++similarity.within_pairs;
      } else {
        similarity.across += value;
        ++similarity.across_pairs;
      }
    }
  }
  if (similarity.within_pairs > 0) similarity.within /= static_cast<double>(similarity.within_pairs);
  if (similarity.across_pairs > 0) similarity.across /= static_cast<double>(similarity.across_pairs);
  return similarity;
}

double topic_p_value(const at::Tensor& cosine_QQ, const std::vector<int64_t>& topics, int64_t draws,
                     uint64_t seed) {
  const auto difference = [&cosine_QQ](const std::vector<int64_t>& labels) {
    const TopicSimilarity similarity = topic_similarity(cosine_QQ, labels);
    return similarity.within - similarity.across;
  };
  // Sums of the same numbers in another order must not count as smaller.
  const double observed = difference(topics) - 1e-12;
  std::vector<int64_t> labels = topics;
  SplitMix64 random(seed);
  int64_t reached = 1;
  for (int64_t draw = 0; draw < draws; ++draw) {
    for (size_t i = labels.size(); i > 1; --i) std::swap(labels[i - 1], labels[random.below(i)]);
    if (difference(labels) >= observed) ++reached;
  }
  return static_cast<double>(reached) / static_cast<double>(draws + 1);
}

double neighbor_hit_rate(const at::Tensor& mask_QLE) {
  const int64_t count = mask_QLE.size(0);
  if (count < 2) return 0.0;
  const at::Tensor mask = mask_QLE.to(at::kDouble);
  const at::Tensor later = mask.narrow(0, 1, count - 1);
  const at::Tensor kept = (later * mask.narrow(0, 0, count - 1)).sum();
  const double selected = later.sum().item<double>();
  return selected == 0.0 ? 0.0 : kept.item<double>() / selected;
}

}  // namespace smoe
