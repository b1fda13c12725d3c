// Figures about routing masks: how alike those of two segments are, and whether likeness follows topics.
//
// Shape legend of the analysis area: Q segments, L MoE layers, E experts, G groups.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace smoe {

// [Q, Q] float64: cosine between the masks of each two segments over all layers and experts (paper A.4).
// `mask_QLE` holds non-negative numbers: zeros and ones, or means of such. A mask of zeros has cosine 0 with
// all.
at::Tensor mask_cosine_QQ(const at::Tensor& mask_QLE);

struct TopicSimilarity {
  double within = 0.0;  // mean cosine of two segments of one topic
  double across = 0.0;  // of two segments of different topics
  int64_t within_pairs = 0;
  int64_t across_pairs = 0;
};

// Over all pairs of different segments. `topics`: one number a segment.
TopicSimilarity topic_similarity(const at::Tensor& cosine_QQ, const std::vector<int64_t>& topics);

// Probability, if topics did not matter, of a difference `within - across` at least as large as the observed
// one: share of `draws` random exchanges of the topics that reach it, the observed one counted among them.
// The things compared must be independent of each other (documents, not neighbouring segments of one
// document).
double topic_p_value(const at::Tensor& cosine_QQ, const std::vector<int64_t>& topics, int64_t draws,
                     uint64_t seed);

// Share of a segment's experts that the segment before it had, mean over layers and neighbours: the hit rate
// of a cache that holds one segment's experts. `mask_QLE` are the segments of one text, in order; 0 for fewer
// than two.
double neighbor_hit_rate(const at::Tensor& mask_QLE);

}  // namespace smoe
