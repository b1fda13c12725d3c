// The rows that a model is continuing: their keys and values, their experts, and the forward passes that feed
// them. Knows nothing of sampling, text or requests.
//
// Shape legend: B rows, T tokens, V vocabulary, L MoE layers, E experts.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "smoe/infer/row_routing.h"
#include "smoe/model/model.h"

namespace smoe {

struct DecodeRow {
  int64_t budget = 0;  // index into the model's budgets
  RowRouting routing;  // of a Stepped MoE
};

// Experts of a row's new choice, and how many of them it had before, over all layers.
struct RefreshCount {
  int64_t kept = 0;
  int64_t selected = 0;
};

class DecodeBatch {
 public:
  // `model` must outlive the batch.
  explicit DecodeBatch(const Model& model) : model_(model) {}

  // Appends rows that hold `prompts` (none empty; `rows[i].routing.prompt_tokens` is set here) and returns
  // the logits of their last tokens. Pieces of prompts are padded on the right to the longest. They have
  // `chunk_tokens` tokens, more where a turn of a dialogue is longer: its experts are chosen by its last
  // prompt token, so that its first tokens cannot be fed before that one is known.
  //
  // With a `prefix` (a cache of one row) the prompts, whole here too, begin with the tokens that it holds. It
  // is stored once as long as all rows of the batch have the same one, and copied into each row from then on.
  at::Tensor prefill(const std::vector<std::vector<int32_t>>& prompts, std::vector<DecodeRow> rows,
                     int64_t chunk_tokens, const std::shared_ptr<const KvCache>& prefix = nullptr);
  // Appends one token to each row and returns the logits of these tokens.
  at::Tensor decode(const std::vector<int32_t>& tokens);
  // Keeps the rows of these indices, in this order.
  void keep_rows(const std::vector<int64_t>& indices);

  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }
  // Tokens of each row.
  const std::vector<int64_t>& lengths() const;
  // For each row the new choice that the last `decode` made, if it did.
  const std::vector<std::optional<RefreshCount>>& refreshes() const { return refreshes_; }

 private:
  bool is_stepped() const { return model_.config().architecture == Architecture::kSteppedMoe; }
  void count_refreshes(const at::Tensor& new_mask_BLE);

  const Model& model_;
  std::vector<DecodeRow> rows_;
  std::vector<int64_t> budget_of_row_;
  std::optional<KvCache> cache_;
  at::Tensor mask_BLE_;  // the current experts; undefined unless the model is a Stepped MoE
  std::vector<std::optional<RefreshCount>> refreshes_;
};

}  // namespace smoe
