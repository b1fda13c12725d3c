// The yardstick: a Stepped MoE as a careful user writes it from LibTorch's own operators under autograd, on
// the parameters of a Model. It computes the same function.
//
// Shape legend: B rows, T tokens, N = B*T, D model width, V vocabulary, E experts, h expert width, Q
// segments, S tokens a segment, k experts a segment, R selected (token, expert) pairs.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <unordered_map>

#include "smoe/model/layers.h"
#include "smoe/model/model.h"

namespace smoe {

// How the routed experts are composed.
enum class StockExperts {
  kMaskedDense,  // every expert on every token, times the mask
  kGathered,     // the weights of a segment's experts gathered, then batched products (bmm)
  kGrouped,      // rows sorted by expert, _grouped_mm, index_add. On the CPU LibTorch runs one mm an expert.
};
std::string stock_name(StockExperts experts);

class StockModel {
 public:
  // Shares the parameters of `model`, which must outlive it.
  StockModel(const Model& model, StockExperts experts);

  // [B, T, D] after the final norm. All rows must have one budget, and segments one length.
  at::Tensor forward(const ModelInput& input) const;

  // Plain head and cross-entropy, summed over the tokens; differentiable.
  at::Tensor loss(const at::Tensor& hidden_BTD, const at::Tensor& targets_BT) const;

 private:
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor attention(const at::Tensor& x_BTD, const std::string& prefix, const RotaryTable& table) const;
  at::Tensor feed_forward(const at::Tensor& x, const std::string& prefix) const;
  at::Tensor mask_QLE(const at::Tensor& h_BTD, const ModelInput& input) const;
  at::Tensor routed(const at::Tensor& x_ND, const at::Tensor& mask_QE, const std::string& prefix) const;

  const Model& model_;
  StockExperts experts_;
  std::unordered_map<std::string, at::Tensor> weights_;
};

}  // namespace smoe
