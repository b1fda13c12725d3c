#include "smoe/model/kv_cache.h"

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {

KvCache::KvCache(const ModelConfig& config, int64_t num_rows, int64_t capacity, at::Device device,
                 at::ScalarType dtype, std::shared_ptr<const KvCache> prefix)
    : prefix_(std::move(prefix)),
      own_capacity_(capacity - prefix_length()),
      lengths_(static_cast<size_t>(num_rows), prefix_length()) {
  SMOE_ASSERT(own_capacity_ >= 0 &&
              (prefix_ == nullptr || (prefix_->num_rows() == 1 && prefix_->prefix_ == nullptr)));
  const auto options = at::TensorOptions().device(device).dtype(dtype);
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    // Zeros, not garbage: a masked key still enters the product with weight 0, and 0 * NaN is NaN.
    keys_.push_back(at::zeros({num_rows, config.num_kv_heads, own_capacity_, config.head_dim}, options));
    values_.push_back(at::zeros_like(keys_.back()));
  }
  if (config.architecture == Architecture::kSteppedMoe &&
      config.routing.selector_position != SelectorPosition::kFirst) {
    states_BCD_ = at::zeros({num_rows, own_capacity_, config.dim}, options);
  }
}

int64_t KvCache::own_length() const {
  return lengths_.empty() ? 0 : std::ranges::max(lengths_) - prefix_length();
}

bool KvCache::equal_lengths() const {
  return std::ranges::all_of(lengths_, [&](int64_t length) { return length == lengths_.front(); });
}

at::Tensor KvCache::next_positions(int64_t num_tokens) const {
  const at::Tensor starts_B1 = at::tensor(lengths_, at::TensorOptions().dtype(at::kLong)).unsqueeze(1);
  return (starts_B1 + at::arange(num_tokens, at::kLong)).to(keys_.front().device());
}

at::Tensor KvCache::attention_mask(int64_t num_tokens) const {
  if (equal_lengths() && (num_tokens == 1 || own_length() == 0)) {
    return {};
  }
  const at::Tensor own_positions_BT1 = next_positions(num_tokens).unsqueeze(2) - prefix_length();
  return at::arange(own_length() + num_tokens, own_positions_BT1.options()) <= own_positions_BT1;
}

std::pair<at::Tensor, at::Tensor> KvCache::append(int64_t layer, const at::Tensor& keys_BGTK,
                                                  const at::Tensor& values_BGTK) {
  const int64_t num_tokens = keys_BGTK.size(2);
  const int64_t end = own_length() + num_tokens;
  SMOE_ASSERT(end <= own_capacity_);
  at::Tensor& keys = keys_[static_cast<size_t>(layer)];
  at::Tensor& values = values_[static_cast<size_t>(layer)];
  if (equal_lengths()) {
    keys.narrow(2, own_length(), num_tokens).copy_(keys_BGTK);
    values.narrow(2, own_length(), num_tokens).copy_(values_BGTK);
  } else {
    for (int64_t row = 0; row < num_rows(); ++row) {
      const int64_t start = lengths_[static_cast<size_t>(row)] - prefix_length();
      keys[row].narrow(1, start, num_tokens).copy_(keys_BGTK[row]);
      values[row].narrow(1, start, num_tokens).copy_(values_BGTK[row]);
    }
  }
  return {keys.narrow(2, 0, end), values.narrow(2, 0, end)};
}

std::pair<at::Tensor, at::Tensor> KvCache::stored(int64_t layer) const {
  const auto index = static_cast<size_t>(layer);
  return {keys_[index].narrow(2, 0, own_length()), values_[index].narrow(2, 0, own_length())};
}

void KvCache::append_states(const at::Tensor& states_BTD) {
  if (!keeps_states()) return;
  const int64_t num_tokens = states_BTD.size(1);
  SMOE_ASSERT(own_length() + num_tokens <= own_capacity_);
  for (int64_t row = 0; row < num_rows(); ++row) {
    const int64_t start = lengths_[static_cast<size_t>(row)] - prefix_length();
    states_BCD_[row].narrow(0, start, num_tokens).copy_(states_BTD[row]);
  }
}

const at::Tensor& KvCache::states() const {
  SMOE_ASSERT(keeps_states());
  return states_BCD_;
}

void KvCache::advance(const std::vector<int64_t>& num_kept) {
  SMOE_ASSERT(num_kept.size() == lengths_.size());
  for (size_t row = 0; row < lengths_.size(); ++row) {
    SMOE_ASSERT(num_kept[row] >= 0 && lengths_[row] + num_kept[row] <= capacity());
    lengths_[row] += num_kept[row];
  }
}

void KvCache::truncate(int64_t row, int64_t length) {
  int64_t& current = lengths_.at(static_cast<size_t>(row));
  SMOE_ASSERT(length >= prefix_length() && length <= current);
  current = length;
}

void KvCache::reserve(int64_t capacity) {
  const int64_t own_capacity = capacity - prefix_length();
  if (own_capacity <= own_capacity_) return;
  for (std::vector<at::Tensor>* tensors : {&keys_, &values_}) {
    for (at::Tensor& tensor : *tensors) {
      at::Tensor grown =
          at::zeros({tensor.size(0), tensor.size(1), own_capacity, tensor.size(3)}, tensor.options());
      grown.narrow(2, 0, own_capacity_).copy_(tensor);
      tensor = grown;
    }
  }
  if (keeps_states()) {
    const at::Tensor grown =
        at::zeros({states_BCD_.size(0), own_capacity, states_BCD_.size(2)}, states_BCD_.options());
    grown.narrow(1, 0, own_capacity_).copy_(states_BCD_);
    states_BCD_ = grown;
  }
  own_capacity_ = own_capacity;
}

void KvCache::copy_prefix() {
  if (!prefix_) return;
  for (size_t layer = 0; layer < keys_.size(); ++layer) {
    const auto [keys_1GPK, values_1GPK] = prefix_->stored(static_cast<int64_t>(layer));
    keys_[layer] = at::cat({keys_1GPK.expand({num_rows(), -1, -1, -1}), keys_[layer]}, 2);
    values_[layer] = at::cat({values_1GPK.expand({num_rows(), -1, -1, -1}), values_[layer]}, 2);
  }
  if (keeps_states()) {
    const at::Tensor prefix_1PD = prefix_->states().narrow(1, 0, prefix_length());
    states_BCD_ = at::cat({prefix_1PD.expand({num_rows(), -1, -1}), states_BCD_}, 1);
  }
  own_capacity_ += prefix_length();
  prefix_.reset();
}

KvCache KvCache::select_rows(const std::vector<int64_t>& sources) const {
  KvCache selected;
  selected.prefix_ = prefix_;
  selected.own_capacity_ = own_capacity_;
  const at::Tensor index = at::tensor(sources, at::TensorOptions().dtype(at::kLong))
                               .to(keys_.empty() ? at::kCPU : keys_.front().device());
  for (const int64_t source : sources) {
    selected.lengths_.push_back(lengths_.at(static_cast<size_t>(source)));
  }
  for (size_t layer = 0; layer < keys_.size(); ++layer) {
    selected.keys_.push_back(keys_[layer].index_select(0, index));
    selected.values_.push_back(values_[layer].index_select(0, index));
  }
  if (keeps_states()) selected.states_BCD_ = states_BCD_.index_select(0, index);
  return selected;
}

KvCache KvCache::concatenate(KvCache first, KvCache second) {
  if (first.prefix_ != second.prefix_) {
    first.copy_prefix();
    second.copy_prefix();
  }
  first.reserve(second.capacity());
  second.reserve(first.capacity());
  KvCache both;
  both.prefix_ = first.prefix_;
  both.own_capacity_ = first.own_capacity_;
  both.lengths_ = first.lengths_;
  both.lengths_.insert(both.lengths_.end(), second.lengths_.begin(), second.lengths_.end());
  for (size_t layer = 0; layer < first.keys_.size(); ++layer) {
    both.keys_.push_back(at::cat({first.keys_[layer], second.keys_[layer]}));
    both.values_.push_back(at::cat({first.values_[layer], second.values_[layer]}));
  }
  if (first.keeps_states()) both.states_BCD_ = at::cat({first.states_BCD_, second.states_BCD_});
  return both;
}

}  // namespace smoe
