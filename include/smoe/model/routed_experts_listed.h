// Routed experts for inference on the CPU, given as a list of views instead of stacked tensors. The same
// function as routed_experts (routed_experts.h), without gradients.
//
// Shape legend: N tokens, D model width, E experts, h expert width, Q segments.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "smoe/model/expert_provider.h"
#include "smoe/model/routed_experts.h"

namespace smoe {

struct ListedExperts {
  ExpertShape shape;
  std::vector<int64_t> experts;   // ascending indices into the mask's columns
  std::vector<ExpertView> views;  // of the same length
};

// y [N, D] for x [N, D], both float32. Every expert with a mask entry other than 0 for a segment that is not
// empty must be listed (std::logic_error otherwise). A function of the values alone: where the weights lie
// and how they are encoded does not change a bit of the result, for the same number of threads.
at::Tensor routed_experts_listed(const at::Tensor& x_ND, const ListedExperts& listed,
                                 const at::Tensor& mask_QE, const std::vector<TokenRange>& segments);

// The same sum where not all experts are in memory together: `add` takes them part by part. Bit for bit that
// of routed_experts_listed, however they are divided.
class ListedExpertsSum {
 public:
  // `segments` must outlive the sum.
  ListedExpertsSum(const at::Tensor& x_ND, const ExpertShape& shape, const at::Tensor& mask_QE,
                   const std::vector<TokenRange>& segments);
  ~ListedExpertsSum();
  // Parts come in ascending order of their experts; each expert once.
  void add(const ListedExperts& part);
  // y [N, D], when all parts were added.
  at::Tensor total() const;

 private:
  struct Job;
  std::unique_ptr<Job> job_;
};

// Views of float32 weights stacked on the CPU, which must outlive them.
ListedExperts list_resident_experts(const ExpertWeights& weights, std::vector<int64_t> experts);

// The experts that any segment selects, ascending, for each layer of a mask [Q, L, E] on any device.
std::vector<std::vector<int64_t>> selected_experts(const at::Tensor& mask_QLE);

}  // namespace smoe
