#include "utf8.h"

namespace smoe {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the well-formed sequence at `position` if `valid`, else of the maximal ill-formed part there.
struct Part {
  size_t length;
  bool valid;
};

Part part_at(std::string_view text, size_t position) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char lead = byte(position);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The range of the second byte excludes overlong forms, surrogates and values above U+10FFFF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (position + i == text.size() || byte(position + i) < low || byte(position + i) > high)
      return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const Part part = part_at(text, position);
    if (!part.valid) return false;
    position += part.length;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const Part part = part_at(text, position);
    result += part.valid ? text.substr(position, part.length) : kReplacement;
    position += part.length;
  }
  return result;
}

char32_t next_code_point(std::string_view text, size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position++]);
  if (lead < 0x80) return lead;
  const int following = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t code_point = static_cast<char32_t>(lead & (0x3F >> following));
  for (int i = 0; i < following; ++i) {
    code_point =
        (code_point << 6) | static_cast<char32_t>(static_cast<unsigned char>(text[position++]) & 0x3F);
  }
  return code_point;
}

char32_t previous_code_point(std::string_view text, size_t& position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  size_t start = position;
  return next_code_point(text, start);
}

void append_utf8(char32_t code_point, std::string& text) {
  const auto append = [&](char32_t bits) { text.push_back(static_cast<char>(bits)); };
  if (code_point < 0x80) {
    append(code_point);
  } else if (code_point < 0x800) {
    append(0xC0 | (code_point >> 6));
    append(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    append(0xE0 | (code_point >> 12));
    append(0x80 | ((code_point >> 6) & 0x3F));
    append(0x80 | (code_point & 0x3F));
  } else {
    append(0xF0 | (code_point >> 18));
    append(0x80 | ((code_point >> 12) & 0x3F));
    append(0x80 | ((code_point >> 6) & 0x3F));
    append(0x80 | (code_point & 0x3F));
  }
}

}  // namespace smoe
