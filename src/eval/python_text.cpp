#include "smoe/eval/python_text.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include "smoe/core/error.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

bool is_ascii(std::string_view text) {
  for (const char character : text) {
    if (static_cast<unsigned char>(character) >= 0x80) return false;
  }
  return true;
}

// ICU's macro converts between integer types as it likes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
// The code point at `position`, which moves past it; negative for a byte that is not UTF-8.
UChar32 take_code_point(std::string_view text, int32_t& position) {
  UChar32 code_point = 0;
  U8_NEXT(text.data(), position, static_cast<int32_t>(text.size()), code_point);
  return code_point;
}
#pragma GCC diagnostic pop

// Calls visit(code point, its bytes).
template <class Visit>
void for_each_code_point(std::string_view text, const Visit& visit) {
  for (int32_t position = 0; position < static_cast<int32_t>(text.size());) {
    const auto start = static_cast<size_t>(position);
    const UChar32 code_point = take_code_point(text, position);
    visit(code_point, text.substr(start, static_cast<size_t>(position) - start));
  }
}

std::string lower_by_icu(std::string_view text) {
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  std::string result;
  icu::UnicodeString::fromUTF8(piece).toLower(icu::Locale::getRoot()).toUTF8String(result);
  return result;
}

bool has_only_case(std::string_view text, UProperty wanted, UProperty other) {
  bool found = false;
  bool spoiled = false;
  for_each_code_point(text, [&](UChar32 code_point, std::string_view) {
    spoiled |= u_hasBinaryProperty(code_point, other) || u_istitle(code_point);
    found |= u_hasBinaryProperty(code_point, wanted) != 0;
  });
  return found && !spoiled;
}

}  // namespace

std::string lower(std::string_view text) {
  if (!is_ascii(text)) return lower_by_icu(text);
  std::string result(text);
  for (char& character : result) {
    if (character >= 'A' && character <= 'Z') character = static_cast<char>(character - 'A' + 'a');
  }
  return result;
}

std::string lower_each_character(std::string_view text) {
  std::string result;
  for_each_code_point(text, [&](UChar32, std::string_view bytes) { result += lower(bytes); });
  return result;
}

bool is_upper(std::string_view text) { return has_only_case(text, UCHAR_UPPERCASE, UCHAR_LOWERCASE); }
bool is_lower(std::string_view text) { return has_only_case(text, UCHAR_LOWERCASE, UCHAR_UPPERCASE); }

bool has_letter(std::string_view text) {
  bool found = false;
  for_each_code_point(text,
                      [&](UChar32 code_point, std::string_view) { found |= u_isalpha(code_point) != 0; });
  return found;
}

bool is_utf8(std::string_view text) {
  bool valid = true;
  for_each_code_point(text, [&](UChar32 code_point, std::string_view) { valid &= code_point >= 0; });
  return valid;
}

std::string without_controls(std::string_view text) {
  std::string result;
  for_each_code_point(text, [&](UChar32 code_point, std::string_view bytes) {
    result += u_iscntrl(code_point) || U_IS_UNICODE_NONCHAR(code_point) ? std::string_view(" ") : bytes;
  });
  return result;
}

std::string replace_each(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t position = 0;
  for (size_t hit; (hit = text.find(from, position)) != std::string_view::npos;
       position = hit + from.size()) {
    result.append(text.substr(position, hit - position)).append(to);
  }
  return result.append(text.substr(position));
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator) {
  SMOE_ASSERT(!separator.empty());
  std::vector<std::string_view> pieces;
  size_t position = 0;
  for (size_t hit; (hit = text.find(separator, position)) != std::string_view::npos;
       position = hit + separator.size()) {
    pieces.push_back(text.substr(position, hit - position));
  }
  pieces.push_back(text.substr(position));
  return pieces;
}

std::vector<std::string_view> split_at_spaces(std::string_view text) {
  std::vector<std::string_view> pieces;
  size_t length = 0;
  size_t position = 0;
  const auto finish = [&] {
    if (length > 0) pieces.push_back(text.substr(position - length, length));
    length = 0;
  };
  for_each_code_point(text, [&](UChar32, std::string_view bytes) {
    if (strip_left(bytes).empty()) {
      finish();
    } else {
      length += bytes.size();
    }
    position += bytes.size();
  });
  finish();
  return pieces;
}

size_t count_occurrences(std::string_view text, std::string_view part) {
  return split_at(text, part).size() - 1;
}

std::string_view strip_left_character(std::string_view text, char character) {
  while (text.starts_with(character)) text.remove_prefix(1);
  return text;
}

std::string_view strip_right_character(std::string_view text, char character) {
  while (text.ends_with(character)) text.remove_suffix(1);
  return text;
}

}  // namespace smoe
