// Scores requests as a plain script does: each one is a row of its own in a padded batch, and the output head
// and softmax run over all of its positions.
#pragma once

#include <functional>
#include <vector>

#include "smoe/eval/scorer.h"
#include "smoe/model/model.h"

namespace smoe {

class NaiveScorer {
 public:
  // Hidden states [B, T, D] of a batch.
  using Forward = std::function<at::Tensor(const ModelInput& input)>;

  // `weight_VD` is that of the head. Rows are padded to whole segments of `segment_length`.
  NaiveScorer(Forward forward, at::Tensor weight_VD, int64_t segment_length, int64_t rows_per_batch);

  std::vector<RequestScore> score(const std::vector<Request>& requests, int64_t budget) const;

 private:
  void score_batch(const std::vector<Request>& requests, std::span<const size_t> of_batch, int64_t budget,
                   std::vector<RequestScore>& scores) const;

  Forward forward_;
  at::Tensor weight_VD_;
  int64_t segment_length_;
  int64_t rows_per_batch_;
};

}  // namespace smoe
