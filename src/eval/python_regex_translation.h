// Translation of Python's regular expression syntax to PCRE2's (internal to PythonRegex).
#pragma once

#include <string>
#include <string_view>

namespace smoe {

// Throws DataError that shows the pattern, the place and the reason.
std::string translate_python_regex(std::string_view pattern);

}  // namespace smoe
