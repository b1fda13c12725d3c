#include "pattern_matcher.h"

#include "smoe/core/error.h"
#include "utf8.h"

namespace smoe {
namespace {

// PCRE2 counts U+180E as white space; Unicode and Oniguruma have not done so since Unicode 6.3. Inside a
// class `\S` has no such spelling and stays as it is. What Oniguruma alone understands is refused.
std::string translate(std::string_view pattern) {
  static constexpr std::string_view kSpaces =
      "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}"
      "\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
  std::string result;
  bool in_class = false;
  for (size_t position = 0; position < pattern.size(); ++position) {
    const char character = pattern[position];
    if (character == '\\' && position + 1 < pattern.size()) {
      const char escaped = pattern[++position];
      if (escaped == 's') {
        result += in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
      } else if (escaped == 'S' && !in_class) {
        result += fmt::format("[^{}]", kSpaces);
      } else {
        result += {'\\', escaped};
      }
      continue;
    }
    SMOE_CHECK(DataError, !in_class || (character != '[' && pattern.substr(position, 2) != "&&"),
               "the regular expression '{}' has '{}' inside a class at offset {}; nested classes and "
               "intersections are not supported",
               pattern, character, position);
    in_class = character == '[' || (in_class && character != ']');
    result += character;
  }
  return result;
}

}  // namespace

PatternMatcher::PatternMatcher(std::string_view pattern)
    // A run of a million spaces is legal text: the default limits are for untrusted patterns.
    : expression_(translate(pattern), {.multiline = true, .limit_effort = false, .assume_utf8 = true},
                  pattern) {}

void PatternMatcher::find_all(std::string_view text, std::vector<TextRange>& matches) const {
  matches.clear();
  RegularExpression::Search search(expression_, text);
  for (size_t position = 0; position <= text.size() && search.find(position);) {
    const TextRange match = search.group(0);
    matches.push_back(match);
    position = match.end;
    if (match.begin == match.end) {
      if (position == text.size()) {
        return;
      }
      next_code_point(text, position);
    }
  }
}

}  // namespace smoe
