// Writes a token file (see indexed_dataset.h) document by document; it is complete or absent, never half.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "smoe/core/files.h"
#include "smoe/data/indexed_dataset.h"

namespace smoe {

class IndexedDatasetWriter {
 public:
  // Creates the folder of `prefix` if needed. Throws DataError if that fails, Error if a file cannot be
  // opened.
  IndexedDatasetWriter(const std::filesystem::path& prefix, TokenType type);

  // Appends one document as one sequence. Throws DataError for an id that the type cannot hold.
  void add_document(std::span<const int32_t> ids);

  // Writes the index to disk; both files are complete under their temporary names, and their hashes known.
  void finish();
  // Gives both files their final names, after finish().
  void commit();

  int64_t num_documents() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t bin_bytes() const { return bin_.size(); }
  int64_t idx_bytes() const { return idx_.size(); }
  // SHA-256 of the complete files, after finish().
  const std::string& bin_sha256() const { return bin_sha256_; }
  const std::string& idx_sha256() const { return idx_sha256_; }

 private:
  TokenType type_;
  AtomicFile bin_;
  AtomicFile idx_;
  std::vector<int32_t> lengths_;  // one a document: all that the index needs to be made at the end
  int64_t num_tokens_ = 0;
  std::vector<uint16_t> narrow_;
  std::string bin_sha256_;
  std::string idx_sha256_;
};

}  // namespace smoe
