#include "byte_level_bpe_tokenizer.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <algorithm>
#include <limits>

#include "byte_alphabet.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "special_ids.h"
#include "utf8.h"

namespace smoe {
namespace {

// Bounds the memory that a damaged id could ask for; the largest public vocabularies have 262,144 entries.
constexpr int64_t kMaxVocabSize = int64_t{1} << 24;

const icu::Normalizer2& composer() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* instance = icu::Normalizer2::getNFCInstance(status);
  SMOE_CHECK(Error, U_SUCCESS(status), "ICU has no data for NFC normalization: {}", u_errorName(status));
  return *instance;
}

std::string compose(std::string_view text) {
  SMOE_CHECK(DataError, text.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
             "a text of {} bytes is too long for NFC normalization (at most 2 GiB); split the document",
             text.size());
  UErrorCode status = U_ZERO_ERROR;
  std::string composed;
  icu::StringByteSink<std::string> sink(&composed, static_cast<int32_t>(text.size()));
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  composer().normalizeUTF8(0, piece, sink, nullptr, status);
  SMOE_CHECK(DataError, U_SUCCESS(status), "NFC normalization of a text of {} bytes failed: {}", text.size(),
             u_errorName(status));
  return composed;
}

std::pair<std::string, std::string> parse_merge(const JsonCursor& merge) {
  if (merge.value().is_array()) {
    const auto parts = merge.items();
    if (parts.size() != 2) {
      merge.fail(fmt::format("a merge has two parts, found {}", parts.size()));
    }
    return {parts[0].string(), parts[1].string()};
  }
  const std::string text = merge.string();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    merge.fail(fmt::format("a merge is two tokens with one space between them, found '{}'", text));
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

ByteLevelBpeTokenizer::ByteLevelBpeTokenizer(const std::filesystem::path& file)
    : ByteLevelBpeTokenizer(file, parse_json_file(file)) {}

ByteLevelBpeTokenizer::ByteLevelBpeTokenizer(const std::filesystem::path& file,
                                             const nlohmann::json& document)
    : pre_tokenizer_(JsonCursor(document, file).at("pre_tokenizer")) {
  const JsonCursor root(document, file);
  path_ = file;
  hash_ = sha256_of_file(file);
  root.allow_keys({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                   "post_processor", "decoder", "model"});
  check_decoder(root);
  read_model(root.at("model"));
  read_normalizer(root);
  read_added_tokens(root);
  const SpecialIds special_ids = find_special_ids(
      file, root, [this](std::string_view token) { return token_id(token); }, vocab_size());
  bos_id_ = special_ids.bos;
  eos_id_ = special_ids.eos;
}

void ByteLevelBpeTokenizer::check_decoder(const JsonCursor& root) const {
  const JsonCursor type = root.at("decoder").at("type");
  if (type.string() != "ByteLevel") {
    type.fail(fmt::format("the decoder '{}' is not supported; supported is: ByteLevel", type.string()));
  }
}

void ByteLevelBpeTokenizer::read_model(const JsonCursor& model) {
  const std::string type = model.string_or("type", "BPE");
  if (type != "BPE") {
    model.at("type").fail(fmt::format("the model '{}' is not supported; supported is: BPE", type));
  }
  model.allow_keys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                    "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const auto dropout = model.find("dropout"); dropout && dropout->value() != 0) {
    dropout->fail("BPE dropout makes ids random; only null or 0 is supported");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string_or(key, "").empty()) {
      model.at(key).fail("only null or \"\" is supported");
    }
  }
  if (model.boolean_or("byte_fallback", false)) {
    model.at("byte_fallback")
        .fail(
            "true belongs to SentencePiece models, and only byte-level BPE is supported; use the "
            "tokenizer.model that "
            "the model comes with");
  }
  ignores_merges_ = model.boolean_or("ignore_merges", false);
  read_vocabulary(model.at("vocab"));
  read_merges(model.at("merges"));
  read_byte_ids(model);
}

void ByteLevelBpeTokenizer::read_vocabulary(const JsonCursor& vocabulary) {
  if (!vocabulary.value().is_object()) {
    vocabulary.fail("expected an object of tokens and ids");
  }
  const auto& items = vocabulary.value().items();
  for (const auto& [spelling, id] : items) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMaxVocabSize) {
      vocabulary.fail(fmt::format("the id of '{}' is {}; ids are integers from 0 to {}", spelling, id.dump(),
                                  kMaxVocabSize - 1));
    }
    const auto index = id.get<size_t>();
    if (index >= entries_.size()) {
      entries_.resize(index + 1);
    }
    if (!entries_[index].spelling.empty()) {
      vocabulary.fail(
          fmt::format("'{}' and '{}' have the same id {}", entries_[index].spelling, spelling, index));
    }
    entries_[index] = {spelling, bytes_of_spelling(spelling).value_or(spelling), false};
    id_of_spelling_.emplace(spelling, static_cast<int32_t>(index));
  }
}

void ByteLevelBpeTokenizer::read_merges(const JsonCursor& merges) {
  const auto items = merges.items();
  merges_ = BpeMerges(items.size());
  for (size_t rank = 0; rank < items.size(); ++rank) {
    const auto [left, right] = parse_merge(items[rank]);
    const auto id_of = [&](const std::string& token) {
      const auto found = id_of_spelling_.find(token);
      if (found == id_of_spelling_.end()) {
        items[rank].fail(fmt::format("'{}' is not in model.vocab", token));
      }
      return found->second;
    };
    merges_.add(id_of(left), id_of(right), static_cast<int32_t>(rank), id_of(left + right));
  }
}

void ByteLevelBpeTokenizer::read_byte_ids(const JsonCursor& model) {
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto found = id_of_spelling_.find(spelling_of_byte(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = found == id_of_spelling_.end() ? -1 : found->second;
    // These bytes never occur in UTF-8, so that some trainers leave them out.
    const bool in_utf8 = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
    if (byte_ids_[byte] < 0 && in_utf8) {
      model.at("vocab").fail(
          fmt::format("the byte 0x{:02X} (spelled '{}') has no token, so that some text could not be "
                      "encoded; train with an "
                      "initial alphabet of all bytes",
                      byte, spelling_of_byte(static_cast<uint8_t>(byte))));
    }
  }
}

void ByteLevelBpeTokenizer::read_normalizer(const JsonCursor& root) {
  const auto normalizer = root.find("normalizer");
  if (!normalizer) {
    return;
  }
  std::vector<JsonCursor> parts = {*normalizer};
  if (normalizer->at("type").string() == "Sequence") {
    parts = normalizer->at("normalizers").items();
  }
  for (const JsonCursor& part : parts) {
    const std::string type = part.at("type").string();
    if (type != "NFC") {
      part.fail(fmt::format("the normalizer '{}' is not supported; supported are: null, NFC", type));
    }
    composes_ = true;
  }
}

void ByteLevelBpeTokenizer::read_added_tokens(const JsonCursor& root) {
  const auto list = root.find("added_tokens");
  if (!list) {
    return;
  }
  for (const JsonCursor& item : list->items()) {
    item.allow_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const int64_t id = item.at("id").integer();
    AddedToken token;
    token.content = item.at("content").string();
    token.special = item.boolean_or("special", false);
    token.single_word = item.boolean_or("single_word", false);
    token.lstrip = item.boolean_or("lstrip", false);
    token.rstrip = item.boolean_or("rstrip", false);
    if (id < 0 || id >= kMaxVocabSize || token.content.empty()) {
      item.fail(fmt::format("an added token needs content and an id from 0 to {}; found '{}' with id {}",
                            kMaxVocabSize - 1, token.content, id));
    }
    token.id = static_cast<int32_t>(id);
    entries_.resize(std::max(entries_.size(), static_cast<size_t>(id) + 1));
    Entry& slot = entries_[static_cast<size_t>(id)];
    if (!slot.spelling.empty() && slot.spelling != token.content) {
      item.fail(fmt::format("'{}' has the id {} of '{}'", token.content, id, slot.spelling));
    }
    slot = {token.content, token.content, token.special};
    id_of_spelling_.insert_or_assign(token.content, token.id);
    if (item.boolean_or("normalized", !token.special)) {
      token.content = normalize(token.content);
      normalized_matcher_.add(std::move(token));
    } else {
      raw_matcher_.add(std::move(token));
    }
  }
}

std::string ByteLevelBpeTokenizer::normalize(std::string_view text) const {
  return composes_ ? compose(text) : std::string(text);
}

std::vector<int32_t> ByteLevelBpeTokenizer::encode(std::string_view text) const {
  return encode_text(text, SpecialTokens::kAsText);
}

std::vector<int32_t> ByteLevelBpeTokenizer::encode_with_special_tokens(std::string_view text) const {
  return encode_text(text, SpecialTokens::kAsIds);
}

std::vector<int32_t> ByteLevelBpeTokenizer::encode_text(std::string_view text, SpecialTokens mode) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  const WordCachePool::Loan cache(caches_);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  for (const TextPart& raw_part : raw_matcher_.split(text, mode)) {
    if (raw_part.id >= 0) {
      ids.push_back(raw_part.id);
      continue;
    }
    const std::string normalized = composes_ ? compose(raw_part.text) : std::string();
    for (const TextPart& part : normalized_matcher_.split(composes_ ? normalized : raw_part.text, mode)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        append_ordinary_text(part.text, *cache, ids);
      }
    }
  }
  return ids;
}

void ByteLevelBpeTokenizer::append_ordinary_text(std::string_view text, WordCache& cache,
                                                 std::vector<int32_t>& ids) const {
  std::string prefixed;
  if (pre_tokenizer_.adds_prefix_space() && !text.starts_with(' ')) {
    prefixed = fmt::format(" {}", text);
    text = prefixed;
  }
  for (const std::string_view word : pre_tokenizer_.split(text)) {
    append_word(word, cache, ids);
  }
}

void ByteLevelBpeTokenizer::append_word(std::string_view word, WordCache& cache,
                                        std::vector<int32_t>& ids) const {
  if (const auto* cached = cache.find(word)) {
    ids.insert(ids.end(), cached->begin(), cached->end());
    return;
  }
  std::vector<int32_t> symbols;
  if (ignores_merges_) {
    if (const auto found = id_of_spelling_.find(spell_bytes(word)); found != id_of_spelling_.end()) {
      symbols.push_back(found->second);
    }
  }
  if (symbols.empty()) {
    symbols.reserve(word.size());
    for (const char byte : word) {
      symbols.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    }
    merges_.apply(symbols);
  }
  cache.insert(word, symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

std::string ByteLevelBpeTokenizer::decode(const std::vector<int32_t>& ids, bool keep_special_tokens) const {
  std::string bytes;
  for (const int32_t id : ids) {
    const Entry& found = entry(id);
    if (keep_special_tokens || !found.special) {
      bytes += found.bytes;
    }
  }
  return is_valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes);
}

const ByteLevelBpeTokenizer::Entry& ByteLevelBpeTokenizer::entry(int32_t id) const {
  SMOE_CHECK(DataError, id >= 0 && id < vocab_size(), "{}: the token id {} is outside the vocabulary (0..{})",
             path_.string(), id, vocab_size() - 1);
  return entries_[static_cast<size_t>(id)];
}

std::string ByteLevelBpeTokenizer::token(int32_t id) const { return entry(id).spelling; }

std::optional<int32_t> ByteLevelBpeTokenizer::token_id(std::string_view token) const {
  const auto found = id_of_spelling_.find(token);
  return found == id_of_spelling_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace smoe
