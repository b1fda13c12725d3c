// A token store: an indexed dataset (PREFIX.bin, PREFIX.idx) with PREFIX.json, which says which tokenizer
// made it and how much text it stands for. The JSON is written last: a store without it is not complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "smoe/data/indexed_dataset.h"
#include "smoe/data/tokenizer.h"

namespace smoe {

// The content of PREFIX.json.
struct TokenStoreInfo {
  std::string tokenizer_hash;  // SHA-256 of the tokenizer's file
  int64_t vocab_size = 0;
  std::optional<int32_t> eos_id;  // ends every document
  std::string token_type;         // uint16 | int32
  int64_t documents = 0;
  int64_t tokens = 0;      // EOS included
  int64_t text_bytes = 0;  // UTF-8 bytes of the documents' text
  int64_t bin_bytes = 0;
  int64_t idx_bytes = 0;
  std::string bin_sha256;
  std::string idx_sha256;

  // Text per token; 0 for an empty store.
  double bytes_per_token() const { return tokens == 0 ? 0.0 : double(text_bytes) / double(tokens); }
};

void write_token_store_info(const std::filesystem::path& prefix, const TokenStoreInfo& info);
// Throws DataError if the file is missing, is not JSON, or lacks a key or has one of the wrong type.
TokenStoreInfo read_token_store_info(const std::filesystem::path& prefix);

struct TokenStore {
  // Opens all three files and checks that they agree. Throws DataError otherwise.
  explicit TokenStore(const std::filesystem::path& prefix);

  IndexedDataset dataset;
  TokenStoreInfo info;
};

// Throws DataError unless the store was made with the tokenizer of this hash and all its ids fit the
// vocabulary of `vocab_size` entries.
void check_store_fits(const TokenStore& store, const std::string& tokenizer_hash, int64_t vocab_size);

// Reads every token. Throws DataError for the first id outside the store's vocabulary, and if the files'
// hashes are not those of PREFIX.json.
void verify_token_store(const TokenStore& store);

// Writes PREFIX.json for a dataset that was made elsewhere with `tokenizer`, after checking every id. The
// bytes of text are those of the decoded documents. Throws DataError if PREFIX.json exists or an id is out of
// range.
TokenStoreInfo adopt_indexed_dataset(const std::filesystem::path& prefix, const Tokenizer& tokenizer);

}  // namespace smoe
