// What the tests of token stores and training data share: a folder of their own, a tokenizer without a file,
// and stores made from lists of ids.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/data/indexed_dataset_writer.h"
#include "smoe/data/token_store.h"
#include "smoe/data/tokenizer.h"
#include "temporary_folder.h"

namespace smoe::test {

using smoe::testing::TemporaryFolder;

inline std::filesystem::path write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// Every byte is a token: id = byte + 2. 0 is <unk>, 1 is EOS.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(bool with_eos = true) : with_eos_(with_eos) { hash_ = std::string(64, 'a'); }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char byte : text) {
      ids.push_back(static_cast<unsigned char>(byte) + 2);
    }
    return ids;
  }
  std::vector<int32_t> encode_with_special_tokens(std::string_view text) const override {
    return encode(text);
  }
  std::string decode(const std::vector<int32_t>& ids, bool keep_special_tokens) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id >= 2) {
        text.push_back(static_cast<char>(id - 2));
      } else if (keep_special_tokens) {
        text += token(id);
      }
    }
    return text;
  }
  int64_t vocab_size() const override { return 258; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override {
    return with_eos_ ? std::optional<int32_t>(1) : std::nullopt;
  }
  std::string token(int32_t id) const override {
    return id == 0 ? "<unk>" : id == 1 ? "</s>" : std::string(1, static_cast<char>(id - 2));
  }
  std::optional<int32_t> token_id(std::string_view) const override { return std::nullopt; }

 private:
  bool with_eos_;
};

inline const std::string kTestHash(64, 'a');

// Writes a complete store of these documents (EOS is not added).
inline void write_store(const std::filesystem::path& prefix,
                        const std::vector<std::vector<int32_t>>& documents, int64_t vocab_size = 1000,
                        const std::string& hash = kTestHash) {
  const TokenType type = smallest_token_type(vocab_size);
  IndexedDatasetWriter writer(prefix, type);
  for (const auto& document : documents) {
    writer.add_document(document);
  }
  writer.finish();
  writer.commit();
  TokenStoreInfo info;
  info.tokenizer_hash = hash;
  info.vocab_size = vocab_size;
  info.eos_id = 1;
  info.token_type = token_type_name(type);
  info.documents = writer.num_documents();
  info.tokens = writer.num_tokens();
  info.text_bytes = 4 * writer.num_tokens();
  info.bin_bytes = writer.bin_bytes();
  info.idx_bytes = writer.idx_bytes();
  info.bin_sha256 = writer.bin_sha256();
  info.idx_sha256 = writer.idx_sha256();
  write_token_store_info(prefix, info);
}

// One document of `count` tokens first, first + 1, ...
inline std::vector<int32_t> counting(int32_t first, int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(first + static_cast<int32_t>(i));
  }
  return ids;
}

// The message of the DataError (or other error) that `body` throws; a failed expectation if there is none.
template <class ErrorType = DataError, class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace smoe::test
