// A bound on the nesting of JSON from outside. The parser itself has none, but copying, comparing and
// printing a value recurse, and a megabyte of `[` would end the process.
#pragma once

#include <cstddef>
#include <string_view>

namespace smoe {

// Deeper than any file that is meant seriously.
inline constexpr size_t kMaxJsonDepth = 500;

// True if the lists and objects of the text nest more than kMaxJsonDepth deep. Text that is not JSON may give
// either answer.
bool is_too_deep_json(std::string_view text);

}  // namespace smoe
