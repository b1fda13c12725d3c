// Keys and values of the tokens a generation has already seen.
//
// Shape legend: B rows, T new tokens, G key/value heads, C capacity in tokens, K head width.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "smoe/model/model_config.h"

namespace smoe {

// Rows may have different lengths. A forward with a cache appends its T tokens behind each row's length in
// every layer; the caller then says with `advance` how many of them each row keeps (a right-padded prompt
// keeps only its own tokens, and what it does not keep is overwritten by the next forward).
//
// Rows may begin with a shared prefix, which is stored once and attended to by all of them.
class KvCache {
 public:
  // Empty rows with room for `capacity` tokens each. With a `prefix` (a cache of one row, without a prefix of
  // its own) every row begins with its tokens, and they count in lengths and capacity.
  KvCache(const ModelConfig& config, int64_t num_rows, int64_t capacity, at::Device device,
          at::ScalarType dtype = at::kFloat, std::shared_ptr<const KvCache> prefix = nullptr);

  int64_t num_rows() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return prefix_length() + own_capacity_; }
  // Tokens kept of each row.
  const std::vector<int64_t>& lengths() const { return lengths_; }
  // Null where rows share nothing.
  const KvCache* prefix() const { return prefix_.get(); }

  // Positions of T new tokens in each row: int64 [B, T].
  at::Tensor next_positions(int64_t num_tokens) const;
  // Where T new tokens may attend after the prefix, P tokens, which all see: bool [B, T, max length - P + T],
  // or undefined where every new token may attend to everything it is given (one token a row, equal lengths)
  // or the plain causal mask serves (empty rows).
  at::Tensor attention_mask(int64_t num_tokens) const;

  // Stores the new keys and values [B, G, T, K] of `layer`; returns all keys and values after the prefix up
  // to the longest row, [B, G, max length - P + T, K] each.
  std::pair<at::Tensor, at::Tensor> append(int64_t layer, const at::Tensor& keys_BGTK,
                                           const at::Tensor& values_BGTK);

  // The keys and values of `layer` after the prefix, [B, G, max length - P, K] each: views.
  std::pair<at::Tensor, at::Tensor> stored(int64_t layer) const;

  // Whether the cache also keeps the state of every token after the dense layers: for a Stepped MoE whose
  // segments are routed by tokens before them, which may have been in an earlier forward.
  bool keeps_states() const { return states_BCD_.defined(); }
  // Stores the states [B, T, D] of the new tokens; nothing where none are kept.
  void append_states(const at::Tensor& states_BTD);
  // [B, own capacity, D]: a row's tokens after the prefix, the new ones too. Only if states are kept.
  const at::Tensor& states() const;

  // Keeps `num_kept[b]` of the tokens appended since the last call.
  void advance(const std::vector<int64_t>& num_kept);
  // Forgets the tokens of `row` from `length` on.
  void truncate(int64_t row, int64_t length);
  // Makes room for `capacity` tokens a row; less than there is changes nothing.
  void reserve(int64_t capacity);
  // Rows become copies of rows `sources[i]` of this cache (to share a prefix, or to drop finished rows).
  KvCache select_rows(const std::vector<int64_t>& sources) const;
  // The rows of `first`, then those of `second`, with the larger of their capacities. Where they do not share
  // the same prefix, each row gets a copy of its own.
  static KvCache concatenate(KvCache first, KvCache second);

 private:
  KvCache() = default;
  int64_t prefix_length() const { return prefix_ ? prefix_->lengths_.front() : 0; }
  int64_t own_length() const;  // of the longest row
  bool equal_lengths() const;
  void copy_prefix();

  std::shared_ptr<const KvCache> prefix_;
  int64_t own_capacity_ = 0;
  std::vector<int64_t> lengths_;
  std::vector<at::Tensor> keys_;  // one [B, G, C, K] a layer
  std::vector<at::Tensor> values_;
  at::Tensor states_BCD_;
};

}  // namespace smoe
