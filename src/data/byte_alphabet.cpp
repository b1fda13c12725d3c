#include "byte_alphabet.h"

#include <array>

#include "utf8.h"

namespace smoe {
namespace {

// 256 bytes, of which 68 are not printable Latin-1 and are moved to U+0100 and up.
constexpr size_t kNumCharacters = 256 + 68;

bool is_printable_latin1(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<std::string, 256> spelling;
  std::array<int, kNumCharacters> byte;  // of each code point; -1: not in the alphabet
};

Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t next_free = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t code_point = is_printable_latin1(byte) ? static_cast<char32_t>(byte) : next_free++;
    append_utf8(code_point, alphabet.spelling[static_cast<size_t>(byte)]);
    alphabet.byte[code_point] = byte;
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet instance = make_alphabet();
  return instance;
}

}  // namespace

const std::string& spelling_of_byte(uint8_t byte) { return alphabet().spelling[byte]; }

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    spelling += spelling_of_byte(static_cast<uint8_t>(byte));
  }
  return spelling;
}

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (size_t position = 0; position < spelling.size();) {
    const char32_t code_point = next_code_point(spelling, position);
    if (code_point >= kNumCharacters || alphabet().byte[code_point] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(alphabet().byte[code_point]);
  }
  return bytes;
}

}  // namespace smoe
