// The clean-up of WikiText pages in lm-evaluation-harness.
#include <array>
#include <utility>

#include "smoe/eval/python_regex.h"
#include "smoe/eval/python_text.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

using Replacement = std::pair<std::string_view, std::string_view>;

constexpr std::array<Replacement, 9> kPunctuation = {{{" @-@ ", "-"},
                                                      {" @,@ ", ","},
                                                      {" @.@ ", "."},
                                                      {" : ", ": "},
                                                      {" ; ", "; "},
                                                      {" . ", ". "},
                                                      {" ! ", "! "},
                                                      {" ? ", "? "},
                                                      {" , ", ", "}}};
constexpr std::array<Replacement, 8> kRest = {{{"= = = =", "===="},
                                               {"= = =", "==="},
                                               {"= =", "=="},
                                               {" \u00B0 ", "\u00B0"},
                                               {" \n", "\n"},
                                               {"\n ", "\n"},
                                               {" N ", " 1 "},
                                               {" 's", "'s"}}};

template <size_t kSize>
std::string replace_in_turn(std::string text, const std::array<Replacement, kSize>& replacements) {
  for (const auto& [from, to] : replacements) text = replace_each(text, from, to);
  return text;
}

}  // namespace

std::string clean_wikitext(std::string_view text) {
  // The first of these is a slip of the reference that hardly ever matches.
  static const PythonRegex slashes("/' [0-9]/");
  static const std::array<std::pair<PythonRegex, std::string_view>, 5> brackets = {
      {{PythonRegex(R"(\(\s*([^\)]*?)\s*\))"), R"((\1))"},
       {PythonRegex(R"(\[\s*([^\]]*?)\s*\])"), R"([\1])"},
       {PythonRegex(R"({\s*([^}]*?)\s*})"), R"({\1})"},
       {PythonRegex(R"("\s*([^"]*?)\s*")"), R"("\1")"},
       {PythonRegex(R"('\s*([^']*?)\s*')"), R"('\1')"}}};
  std::string result = slashes.substitute(replace_each(text, "s '", "s'"), "/'[0-9]/");
  result = replace_in_turn(std::move(result), kPunctuation);
  for (const auto& [regex, replacement] : brackets) result = regex.substitute(result, replacement);
  return replace_in_turn(std::move(result), kRest);
}

}  // namespace smoe
