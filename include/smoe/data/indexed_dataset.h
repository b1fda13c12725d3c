// Token files on disk: Megatron-LM's indexed dataset, PREFIX.bin (the token ids, back to back) and PREFIX.idx
// (where each sequence and document lies), so that corpora prepared elsewhere can be read and ours can be
// used elsewhere. This reads; indexed_dataset_writer.h writes.
//
// PREFIX.idx, little-endian, without padding:
//   9 bytes "MMIDIDX\0\0" | uint64 version = 1 | uint8 type code | uint64 N sequences | uint64 D = documents
//   + 1 int32 lengths [N], in tokens | int64 pointers [N], in bytes into PREFIX.bin | int64 document borders
//   [D], as indices of sequences: 0 first, N last
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/core/files.h"

namespace smoe {

// How a token id is stored; the values are the format's type codes.
enum class TokenType : uint8_t { kInt32 = 4, kUint16 = 8 };

int64_t token_bytes(TokenType type);
std::string_view token_type_name(TokenType type);
// uint16 for vocabularies below 65536 entries, else int32.
TokenType smallest_token_type(int64_t vocab_size);

// PREFIX.bin, PREFIX.idx, PREFIX.json: the suffix is appended, dots in the prefix stay.
std::filesystem::path with_suffix(const std::filesystem::path& prefix, std::string_view suffix);

// A memory-mapped dataset. Reading is thread-safe.
class IndexedDataset {
 public:
  // Checks everything that the index claims against the sizes of both files. Throws DataError naming the file
  // and the first thing that is wrong with it.
  explicit IndexedDataset(const std::filesystem::path& prefix);

  TokenType token_type() const { return token_type_; }
  int64_t num_documents() const { return static_cast<int64_t>(document_borders_.size()) - 1; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_tokens() const { return document_borders_.back(); }
  // [documents + 1] Document d is the tokens [borders[d], borders[d + 1]).
  const std::vector<int64_t>& document_borders() const { return document_borders_; }

  // Writes tokens [begin, begin + count) to `ids`. The range must lie inside the dataset.
  void read(int64_t begin, int64_t count, int64_t* ids) const;
  // The tokens of one document.
  std::vector<int32_t> document(int64_t index) const;

  const std::filesystem::path& prefix() const { return prefix_; }

 private:
  void read_index(const MappedFile& index);

  std::filesystem::path prefix_;
  MappedFile tokens_;
  TokenType token_type_ = TokenType::kUint16;
  int64_t num_sequences_ = 0;
  std::vector<int64_t> document_borders_;
};

}  // namespace smoe
