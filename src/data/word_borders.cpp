#include "word_borders.h"

#include <cstdint>

namespace smoe {
namespace {

constexpr std::string_view kEscapedSpace = "\u2581";

// One field of a message of protocol buffers: a number, or bytes.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

// Walks the fields of a message that the library has parsed before; stops where it is not one.
class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}

  bool next(Field& field) {
    uint64_t tag = 0, length = 0;
    field = {};
    if (!varint(tag)) return false;
    field.number = tag >> 3;
    switch (tag & 7) {
      case 0:
        return varint(field.value);
      case 1:
        return take(8, field.bytes);
      case 2:
        return varint(length) && take(length, field.bytes);
      case 5:
        return take(4, field.bytes);
      default:
        return false;
    }
  }

 private:
  bool varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool take(uint64_t count, std::string_view& bytes) {
    if (count > rest_.size()) return false;
    bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return true;
  }

  std::string_view rest_;
};

// The settings of a model that matter here, with the defaults of its schema (sentencepiece_model.proto).
struct Settings {
  uint64_t model_type = 1;                // trainer_spec (2): 3
  bool suffixes = false;                  // 24: spaces belong to the word before them
  bool byte_fallback = false;             // 35
  bool rewrites = false;                  // normalizer_spec (3): 2 is not empty
  bool removes_extra_whitespaces = true;  // 4
  bool escapes_whitespaces = true;        // 5
};

void read_trainer(std::string_view message, Settings& settings) {
  FieldReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.number == 3) settings.model_type = field.value;
    if (field.number == 24) settings.suffixes = field.value != 0;
    if (field.number == 35) settings.byte_fallback = field.value != 0;
  }
}

void read_normalizer(std::string_view message, Settings& settings) {
  FieldReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.number == 2) settings.rewrites = !field.bytes.empty();
    if (field.number == 4) settings.removes_extra_whitespaces = field.value != 0;
    if (field.number == 5) settings.escapes_whitespaces = field.value != 0;
  }
}

Settings read_settings(std::string_view model) {
  Settings settings;
  FieldReader reader(model);
  for (Field field; reader.next(field);) {
    if (field.number == 2) read_trainer(field.bytes, settings);
    if (field.number == 3) read_normalizer(field.bytes, settings);
  }
  return settings;
}

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

std::optional<WordBorders> WordBorders::of(std::string_view model, const std::vector<std::string>& pieces) {
  constexpr uint64_t kBpe = 2;
  const Settings settings = read_settings(model);
  if (settings.model_type != kBpe || settings.suffixes || !settings.byte_fallback || settings.rewrites ||
      settings.removes_extra_whitespaces || !settings.escapes_whitespaces) {
    return std::nullopt;
  }
  WordBorders borders;
  for (const std::string& piece : pieces) borders.join(piece);
  return borders;
}

// A space of a piece may stand in the text as a space or as U+2581 itself.
void WordBorders::join(const std::string& piece) {
  std::string spaced;
  for (size_t i = 0; i < piece.size();) {
    const bool is_escaped = std::string_view(piece).substr(i).starts_with(kEscapedSpace);
    spaced += is_escaped ? ' ' : piece[i];
    i += is_escaped ? kEscapedSpace.size() : 1;
  }
  for (size_t i = 1; i < spaced.size(); ++i) {
    const std::string lefts =
        spaced[i - 1] == ' ' ? std::string(" ") + kEscapedSpace.back() : spaced.substr(i - 1, 1);
    const std::string rights =
        spaced[i] == ' ' ? std::string(" ") + kEscapedSpace.front() : spaced.substr(i, 1);
    for (const char left : lefts) {
      for (const char right : rights) joined_[static_cast<uint8_t>(left)].set(static_cast<uint8_t>(right));
    }
  }
}

size_t WordBorders::next(std::string_view text, size_t begin) const {
  size_t end = begin + 1;
  while (end < text.size() &&
         (is_continuation(text[end]) ||
          joined_[static_cast<uint8_t>(text[end - 1])].test(static_cast<uint8_t>(text[end])))) {
    ++end;
  }
  return end;
}

}  // namespace smoe
