// One new token of one row through layers whose keys and values are cached: what decoding a single sequence
// does. All of it is products of matrices with one vector, bound by reading the weights, so that each weight
// is read once, in its encoding, and all threads share one parallel region instead of one for every
// operation.
//
// Shape legend: D model width, V vocabulary, H query heads, G key/value heads, K head width, F hidden width.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "decoder_layer.h"
#include "encoded_weights.h"
#include "smoe/model/kv_cache.h"
#include "stage_list.h"

namespace smoe {

// The routed experts of one token in one layer, and what each hidden state is multiplied by.
struct TokenExperts {
  std::vector<ExpertView> views;
  std::vector<float> weights;
};

// Called by one thread while the others wait; the views are used until the next call.
using ChooseExperts = std::function<TokenExperts(int64_t moe_layer, const std::vector<float>& normed_D)>;

// Everything must outlive the pass. CPU, float32, one row without a shared prefix.
struct SingleTokenModel {
  const ModelConfig& config;
  const std::vector<DecoderLayer>& layers;
  const EncodedWeights& weights;
  const at::Tensor& final_norm;
  const at::Tensor& output_VD;
};

class SingleTokenPass {
 public:
  // The token stands behind those of `cache`, which gets its keys and values (without counting them).
  SingleTokenPass(const SingleTokenModel& model, KvCache& cache, const at::Tensor& h_D,
                  ChooseExperts choose_experts);

  // Layers [begin, end); after the last layer of the model also the final norm and the output head.
  void run(int64_t begin, int64_t end);

  const std::vector<float>& hidden() const { return h_; }       // [D] after the layers so far
  const std::vector<float>& normed() const { return normed_; }  // [D] after the final norm
  const std::vector<float>& logits() const { return logits_; }  // [V]

 private:
  // Rows [begin, begin + count) of matrix number `unit` of a stage.
  struct Block {
    int64_t unit = 0;
    int64_t begin = 0;
    int64_t count = 0;
  };
  struct Unit {  // a SwiGLU
    EncodedMatrix gate;
    EncodedMatrix up;
    EncodedMatrix down;
    float weight = 1.0F;
    int64_t offset = 0;  // of its hidden state
  };

  void add_attention(StageList& stages, int64_t layer);
  void add_feed_forward(StageList& stages, int64_t layer, std::function<void()> after);
  void add_head(StageList& stages);
  void start_feed_forward(StageList& stages, int64_t layer, int64_t wide_stage);
  void attend_group(int64_t layer, int64_t group);
  void widen(int64_t item);
  void narrow(int64_t item);
  void project(const std::vector<EncodedMatrix>& matrices, const std::vector<Block>& blocks, int64_t item,
               const float* input, float* output);
  void norm(const at::Tensor& gain, std::vector<float>& normed) const;
  Unit unit_of(const SwigluWeights& weights) const;

  SingleTokenModel model_;
  KvCache& cache_;
  ChooseExperts choose_experts_;
  std::vector<float> h_, normed_, qkv_, mixed_, gate_, up_, logits_;
  std::vector<float> cos_, sin_;
  std::vector<Unit> units_;  // of the current layer
  std::vector<Block> wide_blocks_, narrow_blocks_;
};

}  // namespace smoe
