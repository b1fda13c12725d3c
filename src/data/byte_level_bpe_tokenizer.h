// Reads the byte-level BPE kind of Hugging Face tokenizer.json, as GPT-2, Llama 3, Qwen and OLMo have it.
#pragma once

#include <array>
#include <string>
#include <unordered_map>

#include "added_token_matcher.h"
#include "bpe_merges.h"
#include "json_cursor.h"
#include "pre_tokenizer.h"
#include "smoe/data/tokenizer.h"
#include "word_cache.h"

namespace smoe {

// Ids are those of the Hugging Face library without added BOS and EOS; its `truncation`, `padding` and
// `post_processor` do not apply. decode(encode(text)) == text for every valid UTF-8 text, up to the
// normalizer (NFC) and add_prefix_space where the file asks for them.
class ByteLevelBpeTokenizer final : public Tokenizer {
 public:
  // Throws DataError naming the file and the JSON path of what is malformed or not supported.
  explicit ByteLevelBpeTokenizer(const std::filesystem::path& file);

  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode_with_special_tokens(std::string_view text) const override;
  std::string decode(const std::vector<int32_t>& ids, bool keep_special_tokens) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(entries_.size()); }
  std::optional<int32_t> bos_id() const override { return bos_id_; }
  std::optional<int32_t> eos_id() const override { return eos_id_; }
  std::string token(int32_t id) const override;
  std::optional<int32_t> token_id(std::string_view token) const override;

 private:
  struct Entry {
    std::string spelling;  // as in the file; empty: no token has this id
    std::string bytes;     // what it decodes to
    bool special = false;
  };

  ByteLevelBpeTokenizer(const std::filesystem::path& file, const nlohmann::json& document);
  void read_model(const JsonCursor& model);
  void read_vocabulary(const JsonCursor& vocabulary);
  void read_merges(const JsonCursor& merges);
  void read_byte_ids(const JsonCursor& model);
  void read_added_tokens(const JsonCursor& root);
  void read_normalizer(const JsonCursor& root);
  void check_decoder(const JsonCursor& root) const;

  const Entry& entry(int32_t id) const;
  std::string normalize(std::string_view text) const;
  std::vector<int32_t> encode_text(std::string_view text, SpecialTokens mode) const;
  void append_ordinary_text(std::string_view text, WordCache& cache, std::vector<int32_t>& ids) const;
  void append_word(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const;

  std::vector<Entry> entries_;
  std::unordered_map<std::string, int32_t, StringViewHash, std::equal_to<>> id_of_spelling_;
  std::array<int32_t, 256> byte_ids_{};  // -1: the vocabulary lacks this byte
  BpeMerges merges_{0};
  PreTokenizer pre_tokenizer_;
  AddedTokenMatcher raw_matcher_;         // applied before the normalizer
  AddedTokenMatcher normalized_matcher_;  // and after it
  bool composes_ = false;                 // the normalizer is NFC
  bool ignores_merges_ = false;           // a word that is in the vocabulary is its own token
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  mutable WordCachePool caches_;
};

}  // namespace smoe
