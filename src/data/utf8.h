// Checks and repairs UTF-8 (internal to the tokenizers).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace smoe {

bool is_valid_utf8(std::string_view text);

// Every maximal ill-formed part becomes one U+FFFD, as the WHATWG encoding standard has it.
std::string replace_invalid_utf8(std::string_view text);

// The code point that starts at byte `position` (which must be inside valid `text`); moves `position` past
// it.
char32_t next_code_point(std::string_view text, size_t& position);

// The code point that ends before byte `position` (> 0) of valid `text`; moves `position` to its start.
char32_t previous_code_point(std::string_view text, size_t& position);

void append_utf8(char32_t code_point, std::string& text);

}  // namespace smoe
