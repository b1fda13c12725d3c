#include "word_cache.h"

namespace smoe {

const std::vector<int32_t>* WordCache::find(std::string_view word) const {
  const auto found = ids_of_word_.find(word);
  return found == ids_of_word_.end() ? nullptr : &found->second;
}

void WordCache::insert(std::string_view word, const std::vector<int32_t>& ids) {
  if (word.size() > kMaxWordBytes) {
    return;
  }
  if (ids_of_word_.size() >= kMaxWords) {
    ids_of_word_.clear();
  }
  ids_of_word_.emplace(word, ids);
}

WordCachePool::Loan::Loan(WordCachePool& pool) : pool_(pool) {
  const std::lock_guard lock(pool_.mutex_);
  if (pool_.idle_.empty()) {
    cache_ = std::make_unique<WordCache>();
  } else {
    cache_ = std::move(pool_.idle_.back());
    pool_.idle_.pop_back();
  }
}

WordCachePool::Loan::~Loan() {
  const std::lock_guard lock(pool_.mutex_);
  pool_.idle_.push_back(std::move(cache_));
}

}  // namespace smoe
