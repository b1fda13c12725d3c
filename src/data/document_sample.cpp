#include "document_sample.h"

#include <algorithm>

#include "smoe/core/random.h"

namespace smoe {

void DocumentSample::add(std::string_view document) {
  const int64_t index = seen_documents_++;
  const auto size = static_cast<int64_t>(document.size());
  seen_bytes_ += size;
  const uint64_t key = mix_seeds(seed_, static_cast<uint64_t>(index));
  const bool full = max_bytes_ > 0 && bytes_ + size > max_bytes_;
  // Once full, the largest key kept bounds what can still enter.
  if (full && !kept_.empty() && key > kept_.front().key) {
    return;
  }
  kept_.push_back({key, index, std::string(document)});
  std::push_heap(kept_.begin(), kept_.end());
  bytes_ += size;
  // At least one document stays, however large it is.
  while (max_bytes_ > 0 && bytes_ > max_bytes_ && kept_.size() > 1) {
    std::pop_heap(kept_.begin(), kept_.end());
    bytes_ -= static_cast<int64_t>(kept_.back().text.size());
    kept_.pop_back();
  }
}

std::vector<std::string> DocumentSample::take() {
  std::sort(kept_.begin(), kept_.end(), [](const Kept& a, const Kept& b) { return a.index < b.index; });
  std::vector<std::string> documents;
  documents.reserve(kept_.size());
  for (Kept& kept : kept_) {
    documents.push_back(std::move(kept.text));
  }
  kept_.clear();
  return documents;
}

}  // namespace smoe
