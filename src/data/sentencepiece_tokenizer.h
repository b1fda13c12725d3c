// Wraps a SentencePiece model file.
#pragma once

#include <sentencepiece_processor.h>

#include <optional>

#include "added_token_matcher.h"
#include "smoe/data/tokenizer.h"
#include "word_borders.h"
#include "word_cache.h"

namespace smoe {

// Special tokens are the control symbols (<s>, </s>, ...): SentencePiece never makes them from plain text.
// User-defined symbols are ordinary tokens. The dummy prefix (the space that many models put before a text)
// is part of the model: encode() applies it and decode() takes it away; text after a special token gets none.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Throws DataError naming the file if it is not a SentencePiece model.
  explicit SentencePieceTokenizer(const std::filesystem::path& file);

  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode_with_special_tokens(std::string_view text) const override;
  std::string decode(const std::vector<int32_t>& ids, bool keep_special_tokens) const override;
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::optional<int32_t> bos_id() const override;
  std::optional<int32_t> eos_id() const override;
  std::string token(int32_t id) const override;
  std::optional<int32_t> token_id(std::string_view token) const override;

 private:
  using Processor = sentencepiece::SentencePieceProcessor;

  void check_id(int32_t id) const;
  void append_encoded(const Processor& processor, std::string_view text, std::vector<int32_t>& ids) const;
  void append_words(const Processor& first, std::string_view text, std::vector<int32_t>& ids) const;
  void append_whole(const Processor& processor, std::string_view text, std::vector<int32_t>& ids) const;
  void append_decoded(const Processor& processor, const std::vector<int>& ids, std::string& text) const;

  Processor processor_;
  Processor continuation_;  // the same model without its dummy prefix
  AddedTokenMatcher control_matcher_;
  std::optional<WordBorders> borders_;  // models whose words can be encoded one by one, and remembered
  mutable WordCachePool caches_;
};

}  // namespace smoe
