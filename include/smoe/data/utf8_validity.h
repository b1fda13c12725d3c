// Validity of UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace smoe {

// Offset of the first byte that does not belong to well-formed UTF-8 (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF), or nullopt.
std::optional<int64_t> first_invalid_utf8(std::string_view text);

}  // namespace smoe
