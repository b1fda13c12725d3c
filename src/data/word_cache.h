// Remembers the ids of words that were tokenized before (internal to the tokenizers).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace smoe {

struct StringViewHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

// A bounded table for one thread at a time. Text follows Zipf's law, so the common words come back at once
// after the table is emptied.
class WordCache {
 public:
  const std::vector<int32_t>* find(std::string_view word) const;
  void insert(std::string_view word, const std::vector<int32_t>& ids);

 private:
  static constexpr size_t kMaxWords = 1 << 16;
  static constexpr size_t kMaxWordBytes = 64;

  std::unordered_map<std::string, std::vector<int32_t>, StringViewHash, std::equal_to<>> ids_of_word_;
};

// Lends caches, so that threads share no table and take one lock a text instead of one a word. Holds as many
// as were ever lent at one time.
class WordCachePool {
 public:
  // A cache for as long as the object lives.
  class Loan {
   public:
    explicit Loan(WordCachePool& pool);
    ~Loan();
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    WordCache& operator*() const { return *cache_; }

   private:
    WordCachePool& pool_;
    std::unique_ptr<WordCache> cache_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> idle_;
};

}  // namespace smoe
