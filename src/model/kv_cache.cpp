#include "smoe/model/kv_cache.h"

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {

KvCache::KvCache(const ModelConfig& config, int64_t num_rows, int64_t capacity, at::Device device,
                 at::ScalarType dtype)
    : capacity_(capacity), lengths_(static_cast<size_t>(num_rows), 0) {
  const auto options = at::TensorOptions().device(device).dtype(dtype);
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    // Zeros, not garbage: a masked key still enters the product with weight 0, and 0 * NaN is NaN.
    keys_.push_back(at::zeros({num_rows, config.num_kv_heads, capacity, config.head_dim}, options));
    values_.push_back(at::zeros_like(keys_.back()));
  }
}

int64_t KvCache::max_length() const { return lengths_.empty() ? 0 : std::ranges::max(lengths_); }

bool KvCache::equal_lengths() const {
  return std::ranges::all_of(lengths_, [&](int64_t length) { return length == lengths_.front(); });
}

at::Tensor KvCache::next_positions(int64_t num_tokens) const {
  const at::Tensor starts_B1 = at::tensor(lengths_, at::TensorOptions().dtype(at::kLong)).unsqueeze(1);
  return (starts_B1 + at::arange(num_tokens, at::kLong)).to(keys_.front().device());
}

at::Tensor KvCache::attention_mask(int64_t num_tokens) const {
  if (equal_lengths() && (num_tokens == 1 || max_length() == 0)) {
    return {};
  }
  const at::Tensor positions_BT1 = next_positions(num_tokens).unsqueeze(2);
  return at::arange(max_length() + num_tokens, positions_BT1.options()) <= positions_BT1;
}

std::pair<at::Tensor, at::Tensor> KvCache::append(int64_t layer, const at::Tensor& keys_BGTK,
                                                  const at::Tensor& values_BGTK) {
  const int64_t num_tokens = keys_BGTK.size(2);
  const int64_t end = max_length() + num_tokens;
  SMOE_ASSERT(end <= capacity_);
  at::Tensor& keys = keys_[static_cast<size_t>(layer)];
  at::Tensor& values = values_[static_cast<size_t>(layer)];
  if (equal_lengths()) {
    keys.narrow(2, max_length(), num_tokens).copy_(keys_BGTK);
    values.narrow(2, max_length(), num_tokens).copy_(values_BGTK);
  } else {
    for (int64_t row = 0; row < num_rows(); ++row) {
      const int64_t start = lengths_[static_cast<size_t>(row)];
      keys[row].narrow(1, start, num_tokens).copy_(keys_BGTK[row]);
      values[row].narrow(1, start, num_tokens).copy_(values_BGTK[row]);
    }
  }
  return {keys.narrow(2, 0, end), values.narrow(2, 0, end)};
}

void KvCache::advance(const std::vector<int64_t>& num_kept) {
  SMOE_ASSERT(num_kept.size() == lengths_.size());
  for (size_t row = 0; row < lengths_.size(); ++row) {
    SMOE_ASSERT(num_kept[row] >= 0 && lengths_[row] + num_kept[row] <= capacity_);
    lengths_[row] += num_kept[row];
  }
}

void KvCache::truncate(int64_t row, int64_t length) {
  int64_t& current = lengths_.at(static_cast<size_t>(row));
  SMOE_ASSERT(length >= 0 && length <= current);
  current = length;
}

void KvCache::reserve(int64_t capacity) {
  if (capacity <= capacity_) return;
  for (std::vector<at::Tensor>* tensors : {&keys_, &values_}) {
    for (at::Tensor& tensor : *tensors) {
      at::Tensor grown =
          at::zeros({tensor.size(0), tensor.size(1), capacity, tensor.size(3)}, tensor.options());
      grown.narrow(2, 0, capacity_).copy_(tensor);
      tensor = grown;
    }
  }
  capacity_ = capacity;
}

KvCache KvCache::select_rows(const std::vector<int64_t>& sources) const {
  KvCache selected;
  selected.capacity_ = capacity_;
  const at::Tensor index = at::tensor(sources, at::TensorOptions().dtype(at::kLong))
                               .to(keys_.empty() ? at::kCPU : keys_.front().device());
  for (const int64_t source : sources) {
    selected.lengths_.push_back(lengths_.at(static_cast<size_t>(source)));
  }
  for (size_t layer = 0; layer < keys_.size(); ++layer) {
    selected.keys_.push_back(keys_[layer].index_select(0, index));
    selected.values_.push_back(values_[layer].index_select(0, index));
  }
  return selected;
}

KvCache KvCache::concatenate(KvCache first, KvCache second) {
  first.reserve(second.capacity_);
  second.reserve(first.capacity_);
  KvCache both;
  both.capacity_ = first.capacity_;
  both.lengths_ = first.lengths_;
  both.lengths_.insert(both.lengths_.end(), second.lengths_.begin(), second.lengths_.end());
  for (size_t layer = 0; layer < first.keys_.size(); ++layer) {
    both.keys_.push_back(at::cat({first.keys_[layer], second.keys_[layer]}));
    both.values_.push_back(at::cat({first.values_[layer], second.values_[layer]}));
  }
  return both;
}

}  // namespace smoe
