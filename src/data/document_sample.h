// A uniform sample of a stream of documents that fits a number of bytes (internal to tokenizer training).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace smoe {

// Every document draws a random key; the sample is the documents with the smallest keys that fit together.
// One pass, memory bounded by the limit (and the largest document), any order of sizes.
class DocumentSample {
 public:
  // `max_bytes` 0: no limit.
  DocumentSample(int64_t max_bytes, uint64_t seed) : max_bytes_(max_bytes), seed_(seed) {}

  void add(std::string_view document);

  int64_t seen_documents() const { return seen_documents_; }
  int64_t seen_bytes() const { return seen_bytes_; }
  int64_t bytes() const { return bytes_; }
  // The documents kept, in the order in which they were added.
  std::vector<std::string> take();

 private:
  struct Kept {
    uint64_t key;
    int64_t index;
    std::string text;
    bool operator<(const Kept& other) const { return key < other.key; }
  };

  int64_t max_bytes_;
  uint64_t seed_;
  int64_t seen_documents_ = 0;
  int64_t seen_bytes_ = 0;
  int64_t bytes_ = 0;
  std::vector<Kept> kept_;  // a heap, the largest key on top
};

}  // namespace smoe
