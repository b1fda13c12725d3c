#include "smoe/eval/text_filters.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {
namespace {

struct CodePoint {
  char32_t value = 0;
  size_t num_bytes = 1;
};

// The code point at `position`; a byte that starts no valid sequence stands for itself.
CodePoint decode_at(std::string_view text, size_t position) {
  const auto byte = [&](size_t offset) { return static_cast<unsigned char>(text[position + offset]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
  if (length == 1 || position + length > text.size()) return {first, 1};
  char32_t value = first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {first, 1};
    value = (value << 6) | (byte(i) & 0x3Fu);
  }
  return {value, length};
}

void append_utf8(std::string& text, char32_t value) {
  const auto put = [&](char32_t bits) { text.push_back(static_cast<char>(bits)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | (value >> 6));
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | (value >> 12));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | (value >> 18));
    put(0x80 | ((value >> 12) & 0x3F));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

// The set of Python's str.isspace().
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_continuation_byte(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Case mappings must not depend on the user's environment.
locale_t unicode_locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  SMOE_CHECK(
      DataError, locale != nullptr,
      "the locale C.UTF-8 is missing on this system, and the filter `capitalize` needs its case mappings; "
      "install it (Debian: package libc-bin)");
  return locale;
}

std::string remove_bracketed(std::string_view text) {
  std::string result;
  size_t position = 0;
  while (position < text.size()) {
    if (text[position] == '[') {
      // A span ends at the first bracket, and never beyond its line.
      const size_t close = text.find_first_of("]\n", position + 1);
      if (close != std::string_view::npos && text[close] == ']') {
        position = close + 1;
        continue;
      }
    }
    result.push_back(text[position++]);
  }
  return result;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t position = 0;
  for (size_t hit; (hit = text.find(from, position)) != std::string_view::npos;
       position = hit + from.size()) {
    result.append(text.substr(position, hit - position)).append(to);
  }
  return result.append(text.substr(position));
}

}  // namespace

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const CodePoint first = decode_at(text, 0);
    if (!is_space(first.value)) break;
    text.remove_prefix(first.num_bytes);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && is_continuation_byte(text[start])) --start;
    if (!is_space(decode_at(text, start).value)) break;
    text = text.substr(0, start);
  }
  return text;
}

std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

std::string capitalize(std::string_view text) {
  const locale_t locale = unicode_locale();
  std::string result;
  for (size_t position = 0; position < text.size();) {
    const CodePoint point = decode_at(text, position);
    if (point.num_bytes == 1 && point.value >= 0x80) {
      result.push_back(text[position]);  // not UTF-8: keep the byte
    } else {
      const auto wide = static_cast<wint_t>(point.value);
      append_utf8(result,
                  static_cast<char32_t>(position == 0 ? towupper_l(wide, locale) : towlower_l(wide, locale)));
    }
    position += point.num_bytes;
  }
  return result;
}

int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += is_continuation_byte(c) ? 0 : 1;
  return count;
}

int64_t count_whitespace_pieces(std::string_view text) {
  int64_t pieces = 1;
  bool in_space = false;
  for (size_t position = 0; position < text.size();) {
    const CodePoint point = decode_at(text, position);
    const bool space = is_space(point.value);
    if (space && !in_space) ++pieces;
    in_space = space;
    position += point.num_bytes;
  }
  return pieces;
}

std::string clean_hellaswag(std::string_view text) {
  return replace_all(remove_bracketed(replace_all(strip(text), " [title]", ". ")), "  ", " ");
}

std::string underscores_to_spaces(std::string_view text) {
  std::string words(text);
  std::ranges::replace(words, '_', ' ');
  return words;
}

std::string apply_text_filter(TextFilter filter, std::string_view text) {
  switch (filter) {
    case TextFilter::kStrip:
      return std::string(strip(text));
    case TextFilter::kStripLeft:
      return std::string(strip_left(text));
    case TextFilter::kStripRight:
      return std::string(strip_right(text));
    case TextFilter::kCapitalize:
      return capitalize(text);
    case TextFilter::kWords:
      return underscores_to_spaces(text);
    case TextFilter::kHellaswag:
      return clean_hellaswag(text);
    case TextFilter::kWikitext:
      return clean_wikitext(text);
  }
  SMOE_ASSERT(false);
}

std::string apply_text_filters(const std::vector<TextFilter>& filters, std::string text) {
  for (const TextFilter filter : filters) text = apply_text_filter(filter, text);
  return text;
}

}  // namespace smoe
