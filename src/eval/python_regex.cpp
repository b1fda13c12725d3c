#include "smoe/eval/python_regex.h"

#include "python_regex_translation.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

std::string text_of(std::string_view text, TextRange range) {
  if (range.begin == std::string_view::npos) return {};
  return std::string(text.substr(range.begin, range.end - range.begin));
}

// Calls visit(search) for every match. Python searches on from the end of a match, and refuses an empty match
// there only if the match itself was empty.
template <class Visit>
void for_each_match(const RegularExpression& expression, std::string_view text, const Visit& visit) {
  RegularExpression::Search search(expression, text);
  size_t position = 0;
  bool allow_empty = true;
  while (search.find(position, allow_empty)) {
    const TextRange match = search.group(0);
    visit(search);
    allow_empty = match.begin != match.end;
    position = match.end;
  }
}

std::string expand(std::string_view replacement, std::string_view text,
                   const RegularExpression::Search& search) {
  std::string result;
  for (size_t i = 0; i < replacement.size(); ++i) {
    const bool is_group = replacement[i] == '\\' && i + 1 < replacement.size() && replacement[i + 1] >= '1' &&
                          replacement[i + 1] <= '9';
    if (is_group) {
      ++i;
      result += text_of(text, search.group(static_cast<size_t>(replacement[i] - '0')));
    } else {
      result += replacement[i];
    }
  }
  return result;
}

}  // namespace

PythonRegex::PythonRegex(std::string_view pattern, PythonRegexFlags flags)
    : expression_(
          translate_python_regex(pattern),
          {.ignore_case = flags.ignore_case, .multiline = flags.multiline, .match_after_final_newline = true},
          pattern) {}

bool PythonRegex::search(std::string_view text) const {
  return RegularExpression::Search(expression_, text).find(0);
}

std::vector<std::string> PythonRegex::first_match(std::string_view text) const {
  RegularExpression::Search search(expression_, text);
  std::vector<std::string> groups;
  if (!search.find(0)) return groups;
  for (size_t i = 0; i <= num_groups(); ++i) groups.push_back(text_of(text, search.group(i)));
  return groups;
}

std::vector<TextRange> PythonRegex::ranges(std::string_view text) const {
  std::vector<TextRange> result;
  for_each_match(expression_, text, [&](const auto& search) { result.push_back(search.group(0)); });
  return result;
}

std::vector<std::vector<std::string>> PythonRegex::find_all(std::string_view text) const {
  const size_t last = num_groups();
  const size_t first = last == 0 ? 0 : 1;
  std::vector<std::vector<std::string>> result;
  for_each_match(expression_, text, [&](const auto& search) {
    std::vector<std::string>& groups = result.emplace_back();
    for (size_t i = first; i <= last; ++i) groups.push_back(text_of(text, search.group(i)));
  });
  return result;
}

std::vector<std::string> PythonRegex::split(std::string_view text) const {
  SMOE_ASSERT(num_groups() == 0);  // Python would put the groups between the pieces
  std::vector<std::string> pieces;
  size_t position = 0;
  for (const TextRange& range : ranges(text)) {
    pieces.push_back(text_of(text, {position, range.begin}));
    position = range.end;
  }
  pieces.push_back(text_of(text, {position, text.size()}));
  return pieces;
}

std::string PythonRegex::substitute(std::string_view text, std::string_view replacement) const {
  std::string result;
  size_t position = 0;
  for_each_match(expression_, text, [&](const auto& search) {
    const TextRange range = search.group(0);
    result += text_of(text, {position, range.begin});
    result += expand(replacement, text, search);
    position = range.end;
  });
  return result + text_of(text, {position, text.size()});
}

std::string escape_python_regex(std::string_view text) {
  static constexpr std::string_view kSpecial = "()[]{}?*+-|^$\\.&~# \t\n\r\v\f";
  std::string result;
  for (const char character : text) {
    if (kSpecial.find(character) != std::string_view::npos) result += '\\';
    result += character;
  }
  return result;
}

}  // namespace smoe
