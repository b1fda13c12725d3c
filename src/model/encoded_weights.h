// The matrices of a model as products with one vector read them: float32 where they lie, or copies in fewer
// bits made once.
//
// Shape legend: F rows, D columns, E experts, h expert width.
#pragma once

#include <ATen/ATen.h>

#include <unordered_map>

#include "encoded_matrix.h"
#include "smoe/model/routed_experts.h"

namespace smoe {

class EncodedWeights {
 public:
  // Rounds `weight` [..., D], float32 on the CPU, to what `encoding` can hold (bf16: to nearest even; int8:
  // with one scale a row, the largest magnitude / 127), in place, and keeps a copy in that encoding. Nothing
  // for float32.
  void encode(at::Tensor& weight, ExpertEncoding encoding);

  // The weight [F, D]. It must outlive the matrix.
  EncodedMatrix matrix(const at::Tensor& weight_FD) const { return slice(weight_FD, 0); }
  // One expert of stacked weights [E, ...].
  ExpertView expert(const ExpertWeights& weights, int64_t expert) const;

 private:
  struct Copy {
    ExpertEncoding encoding = ExpertEncoding::kFloat32;
    at::Tensor values;  // as the weight
    at::Tensor scales;  // int8: one a row
  };
  // The last two dimensions of `weight`, at index `index` of the one before, if there is one.
  EncodedMatrix slice(const at::Tensor& weight, int64_t index) const;

  std::unordered_map<const void*, Copy> copies_;  // by the data of the weight
};

}  // namespace smoe
