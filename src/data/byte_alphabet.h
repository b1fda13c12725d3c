// GPT-2's spelling of bytes as printable characters, in which byte-level vocabularies are written: printable
// Latin-1 bytes are themselves, the others are U+0100, U+0101, ... in order (internal to the tokenizers).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace smoe {

// The spelling of one byte (" " is "\u0120").
const std::string& spelling_of_byte(uint8_t byte);

std::string spell_bytes(std::string_view bytes);

// The bytes that valid UTF-8 `spelling` stands for, or nullopt if a character is outside the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

}  // namespace smoe
