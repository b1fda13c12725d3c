// Regular expressions with the syntax and the matching rules of Python's `re` on str: published filters and
// checkers are written for it. Run by PCRE2 after a translation; what the two read differently and the
// translation does not cover is refused, never matched in another way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smoe/core/regular_expression.h"

namespace smoe {

struct PythonRegexFlags {
  bool ignore_case = false;
  bool multiline = false;
};

class PythonRegex {
 public:
  // Throws DataError for what Python refuses, and for what is not supported: the flags a, L and x, flags that
  // are not at the start, \N{...}, and \S, \W inside a class.
  explicit PythonRegex(std::string_view pattern, PythonRegexFlags flags = {});

  // All of these throw DataError for text that is not UTF-8.

  // re.search: whether some part of the text matches.
  bool search(std::string_view text) const;
  // The groups of the first match, the whole match first, empty where there is none. Groups that took no part
  // are empty strings.
  std::vector<std::string> first_match(std::string_view text) const;
  // Byte ranges of all matches as re.finditer gives them: an empty match may touch the one before it.
  std::vector<TextRange> ranges(std::string_view text) const;
  size_t count(std::string_view text) const { return ranges(text).size(); }
  // re.findall: per match its groups, or the whole match if the pattern has none.
  std::vector<std::vector<std::string>> find_all(std::string_view text) const;
  // re.split of a pattern without groups.
  std::vector<std::string> split(std::string_view text) const;
  // re.sub; \1 to \9 in `replacement` are groups, any other character stands for itself.
  std::string substitute(std::string_view text, std::string_view replacement) const;

  size_t num_groups() const { return expression_.num_groups(); }

 private:
  RegularExpression expression_;
};

// re.escape for a piece of a pattern.
std::string escape_python_regex(std::string_view text);

}  // namespace smoe
