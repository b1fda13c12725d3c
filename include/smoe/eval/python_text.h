// Methods of Python's str that follow the full Unicode mappings; strip() and its like are in text_filters.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smoe {

// str.lower(): full mappings, the final sigma included.
std::string lower(std::string_view text);
// str.lower() of every code point by itself, without the final sigma.
std::string lower_each_character(std::string_view text);

// str.isupper(), str.islower(): some cased character, and none of the other case.
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);
// Whether some character is a letter.
bool has_letter(std::string_view text);
// Whether the text is well-formed UTF-8.
bool is_utf8(std::string_view text);
// With a space for every control character and noncharacter, which CLD2 takes for damage.
std::string without_controls(std::string_view text);

// str.replace().
std::string replace_each(std::string_view text, std::string_view from, std::string_view to);
// str.split(separator), for a separator that is not empty.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator);
// str.split(): the pieces between white space, none of them empty.
std::vector<std::string_view> split_at_spaces(std::string_view text);
// str.count(): occurrences without overlap.
size_t count_occurrences(std::string_view text, std::string_view part);
// str.lstrip(character), str.rstrip(character), for an ASCII character.
std::string_view strip_left_character(std::string_view text, char character);
std::string_view strip_right_character(std::string_view text, char character);

// Whether Python's json.loads reads the text: one JSON value, where NaN, Infinity, -Infinity and lone
// surrogates count as values, and integers of more than 4300 digits do not.
bool is_python_json(std::string_view text);

}  // namespace smoe
