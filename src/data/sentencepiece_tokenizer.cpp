#include "sentencepiece_tokenizer.h"

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "utf8.h"

namespace smoe {
namespace {

// ModelProto { normalizer_spec (3) { add_dummy_prefix (3): false } } on the wire. Protocol buffers merge what
// is appended to a message into it, which changes this one setting without a copy of the schema.
constexpr std::string_view kNoDummyPrefix("\x1A\x02\x18\x00", 4);

void load(sentencepiece::SentencePieceProcessor& processor, std::string_view model,
          const std::filesystem::path& file) {
  const auto status = processor.LoadFromSerializedProto(model);
  SMOE_CHECK(DataError, status.ok() && processor.GetPieceSize() > 0,
             "{}: this is not a SentencePiece model, or it is damaged ({})", file.string(),
             status.ok() ? "it has no pieces" : status.ToString());
}

std::optional<int32_t> known(int id) { return id < 0 ? std::nullopt : std::optional<int32_t>(id); }

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const std::filesystem::path& file) {
  const std::string model = read_file(file);
  path_ = file;
  hash_ = sha256_of_bytes(model);
  load(processor_, model, file);
  load(continuation_, model + std::string(kNoDummyPrefix), file);
  std::vector<std::string> pieces;
  for (int id = 0; id < processor_.GetPieceSize(); ++id) {
    pieces.push_back(processor_.IdToPiece(id));
    if (processor_.IsControl(id) && !processor_.IdToPiece(id).empty()) {
      AddedToken token;
      token.id = id;
      token.content = processor_.IdToPiece(id);
      token.special = true;
      control_matcher_.add(std::move(token));
    }
  }
  borders_ = WordBorders::of(model, pieces);
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  append_encoded(processor_, text, ids);
  return ids;
}

std::vector<int32_t> SentencePieceTokenizer::encode_with_special_tokens(std::string_view text) const {
  std::vector<int32_t> ids;
  bool first = true;
  for (const TextPart& part : control_matcher_.split(text, SpecialTokens::kAsIds)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      append_encoded(first ? processor_ : continuation_, part.text, ids);
    }
    first = false;
  }
  return ids;
}

void SentencePieceTokenizer::append_encoded(const Processor& processor, std::string_view text,
                                            std::vector<int32_t>& ids) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  if (borders_) {
    append_words(processor, text, ids);
  } else {
    append_whole(processor, text, ids);
  }
}

// Only the first word can get a dummy prefix.
void SentencePieceTokenizer::append_words(const Processor& first, std::string_view text,
                                          std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  const WordCachePool::Loan cache(caches_);
  size_t end = borders_->next(text, 0);
  append_whole(first, text.substr(0, end), ids);
  std::vector<int32_t> made;
  for (size_t begin = end; begin < text.size(); begin = end) {
    end = borders_->next(text, begin);
    const std::string_view word = text.substr(begin, end - begin);
    if (const auto* known = (*cache).find(word)) {
      ids.insert(ids.end(), known->begin(), known->end());
      continue;
    }
    made.clear();
    append_whole(continuation_, word, made);
    (*cache).insert(word, made);
    ids.insert(ids.end(), made.begin(), made.end());
  }
}

void SentencePieceTokenizer::append_whole(const Processor& processor, std::string_view text,
                                          std::vector<int32_t>& ids) const {
  std::vector<int> encoded;
  const auto status = processor.Encode(text, &encoded);
  SMOE_CHECK(DataError, status.ok(), "{}: SentencePiece could not encode a text of {} bytes: {}",
             path_.string(), text.size(), status.ToString());
  ids.insert(ids.end(), encoded.begin(), encoded.end());
}

std::string SentencePieceTokenizer::decode(const std::vector<int32_t>& ids, bool keep_special_tokens) const {
  std::string text;
  std::vector<int> stretch;
  const Processor* processor = &processor_;
  for (const int32_t id : ids) {
    check_id(id);
    if (!processor_.IsControl(id)) {
      stretch.push_back(id);
    } else if (keep_special_tokens) {
      // What follows a kept special token is decoded by itself; the dummy prefix is taken away only once.
      append_decoded(*processor, stretch, text);
      processor = stretch.empty() ? processor : &continuation_;
      stretch.clear();
      text += processor_.IdToPiece(id);
    }
  }
  append_decoded(*processor, stretch, text);
  return text;
}

void SentencePieceTokenizer::append_decoded(const Processor& processor, const std::vector<int>& ids,
                                            std::string& text) const {
  if (ids.empty()) {
    return;
  }
  std::string decoded;
  const auto status = processor.Decode(ids, &decoded);
  SMOE_CHECK(DataError, status.ok(), "{}: SentencePiece could not decode {} ids: {}", path_.string(),
             ids.size(), status.ToString());
  text += decoded;
}

void SentencePieceTokenizer::check_id(int32_t id) const {
  SMOE_CHECK(DataError, id >= 0 && id < vocab_size(), "{}: the token id {} is outside the vocabulary (0..{})",
             path_.string(), id, vocab_size() - 1);
}

std::optional<int32_t> SentencePieceTokenizer::bos_id() const { return known(processor_.bos_id()); }

std::optional<int32_t> SentencePieceTokenizer::eos_id() const { return known(processor_.eos_id()); }

std::string SentencePieceTokenizer::token(int32_t id) const {
  check_id(id);
  return processor_.IdToPiece(id);
}

std::optional<int32_t> SentencePieceTokenizer::token_id(std::string_view token) const {
  const int id = processor_.PieceToId(token);
  // PieceToId answers <unk> for everything it does not know.
  return id >= 0 && processor_.IdToPiece(id) == token ? std::optional<int32_t>(id) : std::nullopt;
}

}  // namespace smoe
