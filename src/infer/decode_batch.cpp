// Shape legend: B rows, T tokens, D model width, V vocabulary, Q segments, L MoE layers, E experts.
#include "smoe/infer/decode_batch.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// Caches grow in steps, so that a long answer does not copy its cache at every token.
constexpr int64_t kCapacityStep = 256;

int64_t capacity_for(int64_t num_tokens) {
  const int64_t generous = num_tokens + num_tokens / 2;
  return (generous / kCapacityStep + 1) * kCapacityStep;
}

at::Tensor index_tensor(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong)).to(device);
}

std::vector<int64_t> budgets_of(const std::vector<DecodeRow>& rows) {
  std::vector<int64_t> budgets;
  budgets.reserve(rows.size());
  for (const DecodeRow& row : rows) budgets.push_back(row.budget);
  return budgets;
}

// float32 [B, V] on the CPU, where tokens are chosen.
at::Tensor logits_of(const at::Tensor& hidden_BD, const Model& model) {
  return at::linear(hidden_BD, model.output_weight()).to(at::kCPU, at::kFloat).contiguous();
}

// One padded batch of prompts on its way through the model.
class Prefill {
 public:
  Prefill(const Model& model, const std::vector<std::vector<int32_t>>& prompts,
          const std::vector<DecodeRow>& rows, int64_t chunk_tokens,
          const std::shared_ptr<const KvCache>& prefix)
      : model_(model),
        prompts_(prompts),
        rows_(rows),
        chunk_tokens_(chunk_tokens),
        is_stepped_(model.config().architecture == Architecture::kSteppedMoe),
        last_hidden_(prompts.size()) {
    int64_t longest = 0;
    for (const std::vector<int32_t>& prompt : prompts) longest = std::max(longest, std::ssize(prompt));
    cache_.emplace(model.config(), std::ssize(prompts), capacity_for(longest), model.device(),
                   model.output_weight().scalar_type(), prefix);
  }

  void run() {
    while (const int64_t num_tokens = longest_piece(chunk_tokens_)) {
      cache_->reserve(std::ranges::max(cache_->lengths()) + num_tokens);
      run_piece(num_tokens);
    }
  }

  at::Tensor logits() const { return logits_of(at::stack(last_hidden_), model_); }
  KvCache take_cache() { return std::move(*cache_); }
  const at::Tensor& mask_BLE() const { return mask_BLE_; }

 private:
  // Tokens of the next piece of `row`, `most_tokens` where its routing allows that; 0 after the last.
  int64_t next_piece(int64_t row, int64_t most_tokens) const {
    const int64_t position = cache_->lengths()[static_cast<size_t>(row)];
    const int64_t left = std::ssize(prompts_[static_cast<size_t>(row)]) - position;
    if (left == 0 || !is_stepped_) return std::min(left, most_tokens);
    return rows_[static_cast<size_t>(row)].routing.piece_end(position, most_tokens) - position;
  }
  int64_t longest_piece(int64_t most_tokens) const {
    int64_t longest = 0;
    for (int64_t row = 0; row < std::ssize(prompts_); ++row) {
      longest = std::max(longest, next_piece(row, most_tokens));
    }
    return longest;
  }

  void run_piece(int64_t num_tokens) {
    const int64_t num_rows = std::ssize(prompts_);
    at::Tensor tokens_BT = at::zeros({num_rows, num_tokens}, at::kLong);
    ModelInput input;
    input.segments = {num_rows, num_tokens, {}};
    std::vector<int64_t> num_kept, last_segment;
    for (int64_t row = 0; row < num_rows; ++row) {
      const std::vector<int32_t>& prompt = prompts_[static_cast<size_t>(row)];
      const int64_t position = cache_->lengths()[static_cast<size_t>(row)];
      const int64_t kept = next_piece(row, num_tokens);
      std::copy_n(prompt.begin() + position, kept, tokens_BT.mutable_data_ptr<int64_t>() + row * num_tokens);
      num_kept.push_back(kept);
      if (!is_stepped_) continue;
      append_segments(rows_[static_cast<size_t>(row)].routing, row, position, kept, num_tokens,
                      input.segments);
      last_segment.push_back(input.segments.num_segments() - 1);
    }
    input.tokens_BT = tokens_BT.to(model_.device());
    input.budget_of_row = budgets_of(rows_);
    input.cache = &*cache_;
    input.carried_mask_BLE = mask_BLE_;
    const ModelOutput output = model_.forward(input);
    if (output.plan) {
      mask_BLE_ = output.plan->mask_QLE.index_select(0, index_tensor(last_segment, model_.device()));
    }
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t kept = num_kept[static_cast<size_t>(row)];
      // Only the last piece that brings tokens of the row leaves its state behind.
      if (kept > 0) last_hidden_[static_cast<size_t>(row)] = output.hidden_BTD[row][kept - 1];
    }
    cache_->advance(num_kept);
  }

  const Model& model_;
  const std::vector<std::vector<int32_t>>& prompts_;
  const std::vector<DecodeRow>& rows_;
  int64_t chunk_tokens_;
  bool is_stepped_;
  std::vector<at::Tensor> last_hidden_;
  std::optional<KvCache> cache_;
  at::Tensor mask_BLE_;
};

}  // namespace

at::Tensor DecodeBatch::prefill(const std::vector<std::vector<int32_t>>& prompts, std::vector<DecodeRow> rows,
                                int64_t chunk_tokens, const std::shared_ptr<const KvCache>& prefix) {
  SMOE_ASSERT(!prompts.empty() && prompts.size() == rows.size() && chunk_tokens >= 1);
  const c10::InferenceMode no_gradients;
  for (size_t row = 0; row < rows.size(); ++row) {
    SMOE_ASSERT(std::ssize(prompts[row]) > (prefix ? prefix->lengths().front() : 0));
    rows[row].routing.prompt_tokens = std::ssize(prompts[row]);
  }
  Prefill prefill(model_, prompts, rows, chunk_tokens, prefix);
  prefill.run();
  if (rows_.empty()) {
    cache_ = prefill.take_cache();
    mask_BLE_ = prefill.mask_BLE();
  } else {
    cache_ = KvCache::concatenate(std::move(*cache_), prefill.take_cache());
    if (is_stepped()) mask_BLE_ = at::cat({mask_BLE_, prefill.mask_BLE()});
  }
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  budget_of_row_ = budgets_of(rows_);
  refreshes_.assign(rows_.size(), std::nullopt);
  return prefill.logits();
}

at::Tensor DecodeBatch::decode(const std::vector<int32_t>& tokens) {
  SMOE_ASSERT(std::ssize(tokens) == num_rows() && num_rows() > 0);
  const c10::InferenceMode no_gradients;
  const int64_t end = std::ranges::max(cache_->lengths()) + 1;
  if (end > cache_->capacity()) cache_->reserve(capacity_for(end));
  ModelInput input;
  input.tokens_BT = at::tensor(tokens, at::TensorOptions().dtype(at::kInt)).to(at::kLong).unsqueeze(1);
  input.tokens_BT = input.tokens_BT.to(model_.device());
  input.budget_of_row = budget_of_row_;
  input.cache = &*cache_;
  input.carried_mask_BLE = mask_BLE_;
  if (is_stepped()) {
    input.segments = {num_rows(), 1, {}};
    for (int64_t row = 0; row < num_rows(); ++row) {
      append_segments(rows_[static_cast<size_t>(row)].routing, row,
                      cache_->lengths()[static_cast<size_t>(row)], 1, 1, input.segments);
    }
  }
  const ModelOutput output = model_.forward(input);
  if (output.plan) count_refreshes(output.plan->mask_QLE);
  cache_->advance(std::vector<int64_t>(tokens.size(), 1));
  return output.logits_BV.defined() ? output.logits_BV : logits_of(output.hidden_BTD.select(1, 0), model_);
}

void DecodeBatch::count_refreshes(const at::Tensor& new_mask_BLE) {
  refreshes_.assign(rows_.size(), std::nullopt);
  bool any = false;
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (!rows_[row].routing.begins_run(cache_->lengths()[row])) continue;
    any = true;
    const at::Tensor now_LE = new_mask_BLE[static_cast<int64_t>(row)];
    const at::Tensor both_LE = now_LE * mask_BLE_[static_cast<int64_t>(row)];
    refreshes_[row] = RefreshCount{static_cast<int64_t>(both_LE.sum().item<double>()),
                                   static_cast<int64_t>(now_LE.sum().item<double>())};
  }
  if (any) mask_BLE_ = new_mask_BLE;
}

void DecodeBatch::keep_rows(const std::vector<int64_t>& indices) {
  const c10::InferenceMode no_gradients;
  std::vector<DecodeRow> rows;
  for (const int64_t index : indices) rows.push_back(rows_.at(static_cast<size_t>(index)));
  rows_ = std::move(rows);
  budget_of_row_ = budgets_of(rows_);
  refreshes_.assign(rows_.size(), std::nullopt);
  if (rows_.empty()) {
    cache_.reset();
    mask_BLE_ = at::Tensor();
    return;
  }
  cache_ = cache_->select_rows(indices);
  if (mask_BLE_.defined()) mask_BLE_ = mask_BLE_.index_select(0, index_tensor(indices, model_.device()));
}

const std::vector<int64_t>& DecodeBatch::lengths() const {
  static const std::vector<int64_t> kNone;
  return cache_ ? cache_->lengths() : kNone;
}

}  // namespace smoe
