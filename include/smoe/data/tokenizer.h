// Text to token ids and back. `encode` adds nothing: BOS and EOS are explicit ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smoe {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of UTF-8 `text`, without special tokens. Thread-safe.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Ids of `text` in which the spellings of special tokens (for example <|im_end|>) become their ids.
  virtual std::vector<int32_t> encode_with_special_tokens(std::string_view text) const = 0;
  // Text of `ids`; invalid UTF-8 becomes U+FFFD. Special tokens are kept only if `keep_special_tokens`.
  virtual std::string decode(const std::vector<int32_t>& ids, bool keep_special_tokens = false) const = 0;

  virtual int64_t vocab_size() const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
  // The vocabulary entry of `id`, for display.
  virtual std::string token(int32_t id) const = 0;
  // Id of a token by its exact spelling.
  virtual std::optional<int32_t> token_id(std::string_view token) const = 0;

  // SHA-256 of the tokenizer's file, as stored in token stores and checkpoints.
  const std::string& hash() const { return hash_; }
  const std::filesystem::path& path() const { return path_; }

 protected:
  std::string hash_;
  std::filesystem::path path_;
};

// Opens a SentencePiece model (*.model) or a Hugging Face byte-level-BPE tokenizer.json; a folder means the
// one of them it holds. Throws DataError naming the file and what is not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace smoe
