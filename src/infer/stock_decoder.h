// The yardstick of smoe-bench decode: one row of a Stepped MoE continued as a careful user writes it from
// LibTorch's own operators, on the parameters of a Model. It computes the same function.
//
// Shape legend: D model width, L MoE layers, E experts, h expert width, k chosen experts, w = k*h, V
// vocabulary.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "smoe/core/random.h"
#include "smoe/model/layers.h"
#include "smoe/model/model.h"

namespace smoe {

// How the routed experts are composed.
enum class StockDecoding {
  kGatheredByToken,  // every token gathers its experts (index_select) into one wide SwiGLU
  kGathered,         // the same once a choice; the tokens of a segment then use the copy
  kLooped,           // nothing is copied: three products an expert
};
std::string stock_decoding_name(StockDecoding decoding);

class StockDecoder {
 public:
  // Whether the composition exists for models of this config (the default router, float32).
  static bool supports(const ModelConfig& config);

  // Shares the parameters of `model`, which must outlive it. Segments of `segment_length` tokens are routed
  // by their first one.
  StockDecoder(const Model& model, int64_t budget, int64_t segment_length, StockDecoding decoding);

  // Appends a token and returns its logits [V].
  at::Tensor append(int32_t token);

  // Seconds for so many random tokens.
  double decode(int64_t num_tokens);

 private:
  struct ChosenExperts {
    std::vector<at::Tensor> gate, up, down;  // one [w, D], [w, D], [D, w], or one an expert
  };

  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor attention(const at::Tensor& x_1D, int64_t layer, const RotaryTable& table);
  at::Tensor feed_forward(const at::Tensor& x_1D, const std::string& prefix) const;
  void choose(const at::Tensor& h_1D);
  ChosenExperts experts_of(int64_t moe_layer) const;
  at::Tensor routed(const at::Tensor& x_1D, int64_t moe_layer) const;

  const Model& model_;
  int64_t budget_;
  int64_t segment_length_;
  StockDecoding decoding_;
  std::unordered_map<std::string, at::Tensor> weights_;
  std::vector<at::Tensor> keys_, values_;  // [1, heads, tokens, head_dim] a layer
  at::Tensor expert_Lk_;
  std::vector<ChosenExperts> chosen_;  // one an MoE layer; none where every token gathers its own
  int64_t position_ = 0;
  SplitMix64 random_{7};
};

}  // namespace smoe
