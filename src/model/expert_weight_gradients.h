// The gradients of stacked expert weights, accumulated by several threads without locks: each expert's are
// written by one thread straight into their place, except that a thread whose first expert was begun by an
// earlier thread keeps a copy of its own, added at the end in the order of the threads.
#pragma once

#include <vector>

#include "expert_chunks.h"

namespace smoe {

class ExpertWeightGradients {
 public:
  // With `existing` gradients, defined all three, adds to them. Without, experts without rows get zeros;
  // everything else is left to the threads. Keeps a reference to `work`.
  ExpertWeightGradients(const ExpertWeights& weights, const ExpertSchedule& schedule, const ExpertWork& work,
                        const ExpertWeights& existing)
      : work_(work), adds_(existing.gate_EhD.defined()), total_(existing), continued_(work.num_threads()) {
    if (!adds_) {
      total_ = {at::empty_like(weights.gate_EhD), at::empty_like(weights.up_EhD),
                at::empty_like(weights.down_EDh)};
    }
    for (int64_t expert = 0; !adds_ && expert < schedule.num_experts(); ++expert) {
      if (schedule.num_rows[expert] == 0) {
        total_.gate_EhD[expert].zero_();
        total_.up_EhD[expert].zero_();
        total_.down_EDh[expert].zero_();
      }
    }
    for (int64_t thread = 0; thread < work.num_threads(); ++thread) {
      if (work.continues_expert(thread)) {
        continued_[thread] = {at::empty_like(weights.gate_EhD[0]), at::empty_like(weights.up_EhD[0]),
                              at::empty_like(weights.down_EDh[0])};
      }
    }
  }

  // Whether the first product of `thread` for `expert` must overwrite what is there.
  bool begins_with_nothing(int64_t thread, int64_t expert) const {
    return !adds_ || is_continued(thread, expert);
  }

  // Where `thread` accumulates the gradients of `expert`.
  template <class Scalar>
  ExpertMatrices<Scalar> of(int64_t thread, int64_t expert, const Sizes& sizes) const {
    if (is_continued(thread, expert)) {
      return mutable_expert_matrices<Scalar>(continued_[thread], sizes, 0);
    }
    return mutable_expert_matrices<Scalar>(total_, sizes, expert);
  }

  ExpertWeights sum() const {
    for (int64_t thread = 0; thread < work_.num_threads(); ++thread) {
      if (work_.continues_expert(thread)) {
        total_.gate_EhD[first_expert(thread)].add_(continued_[thread].gate_EhD);
        total_.up_EhD[first_expert(thread)].add_(continued_[thread].up_EhD);
        total_.down_EDh[first_expert(thread)].add_(continued_[thread].down_EDh);
      }
    }
    return total_;
  }

 private:
  bool is_continued(int64_t thread, int64_t expert) const {
    return work_.continues_expert(thread) && expert == first_expert(thread);
  }
  int64_t first_expert(int64_t thread) const { return work_.chunks[work_.first_chunk[thread]].expert; }

  const ExpertWork& work_;
  bool adds_;
  ExpertWeights total_;
  std::vector<ExpertWeights> continued_;
};

}  // namespace smoe
