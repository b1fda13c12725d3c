#include "smoe/eval/math_answers.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "smoe/core/error.h"
#include "smoe/eval/python_regex.h"
#include "smoe/eval/python_text.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

// What is removed, in this order: words of units and the like, and pieces of TeX.
constexpr std::array<std::string_view, 40> kRemoved = {
    "square",          "ways",       "integers",   "dollars",   "mph",
    "inches",          "ft",         "hours",      "km",        "units",
    "\\ldots",         "sue",        "points",     "feet",      "minutes",
    "digits",          "cents",      "degrees",    "cm",        "gm",
    "pounds",          "meters",     "meals",      "edges",     "students",
    "childrentickets", "multiples",  "\\text{s}",  "\\text{.}", "\\text{\ns}",
    "\\text{}^2",      "\\text{}^3", "\\text{\n}", "\\text{}",  "\\mathrm{th}",
    "^\\circ",         "^{\\circ}",  "\\;",        ",\\!",      "{,}"};
constexpr std::array<std::string_view, 2> kRemovedLast = {"\"", "\\dots"};

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kReplaced = {
    {{"an ", ""},
     {"a ", ""},
     {".$", "$"},
     {"\\$", ""},
     {"\\ ", ""},
     {" ", ""},
     {"mbox", "text"},
     {",\\text{and}", ","},
     {"\\text{and}", ","},
     {"\\text{m}", "\\text{}"}}};

bool is_word(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
}

// Words go while white space still delimits them, so that "ft" does not spoil "\left".
std::string remove_delimited_words(std::string text) {
  static const std::vector<PythonRegex> words = [] {
    std::vector<PythonRegex> result;
    for (const std::string_view expression : kRemoved) {
      if (is_word(expression)) result.emplace_back(fmt::format(R"((?<!\\)\b{}\b)", expression));
    }
    return result;
  }();
  for (const PythonRegex& word : words) text = word.substitute(text, "");
  return text;
}

// Removes a word everywhere but inside the names of TeX commands.
std::string remove_outside_commands(std::string_view text, std::string_view word) {
  static const PythonRegex commands(R"(\\[a-zA-Z]+)");
  std::string result;
  size_t position = 0;
  for (const TextRange& command : commands.ranges(text)) {
    result += replace_each(text.substr(position, command.begin - position), word, "");
    result += text.substr(command.begin, command.end - command.begin);
    position = command.end;
  }
  return result + replace_each(text.substr(position), word, "");
}

std::string remove_expressions(std::string text) {
  for (const std::string_view expression : kRemoved) {
    text =
        is_word(expression) ? remove_outside_commands(text, expression) : replace_each(text, expression, "");
  }
  for (const std::string_view expression : kRemovedLast) text = replace_each(text, expression, "");
  return text;
}

// Takes the answer out of mathematics mode, bold type, a box, ...
std::string unwrap(std::string text) {
  static const std::array<std::pair<PythonRegex, std::string_view>, 5> rules = {
      {{PythonRegex(R"((.*?)(\$)(.*?)(\$)(.*))"), "$\\3$"},
       {PythonRegex(R"((\\text\{)(.*?)(\}))"), "\\2"},
       {PythonRegex(R"((\\textbf\{)(.*?)(\}))"), "\\2"},
       {PythonRegex(R"((\\overline\{)(.*?)(\}))"), "\\2"},
       {PythonRegex(R"((\\boxed\{)(.*)(\}))"), "\\2"}}};
  for (const auto& [pattern, replacement] : rules) text = pattern.substitute(text, replacement);
  return text;
}

// \frac12 becomes \frac{1}{2}, \sqrt3 becomes \sqrt{3}, \sqrt[3]2 becomes \sqrt[3]{2}.
std::string complete_braces(std::string text) {
  static const std::array<std::pair<PythonRegex, std::string_view>, 3> rules = {
      {{PythonRegex(R"((frac)([^{])(.))"), "frac{\\2}{\\3}"},
       {PythonRegex(R"((sqrt)(\[[^\]]*\])(\w))"), "\\1\\2{\\3}"},
       {PythonRegex(R"((sqrt)(?!\[)([^{]))"), "sqrt{\\2}"}}};
  for (const auto& [pattern, replacement] : rules) text = pattern.substitute(text, replacement);
  return text;
}

std::string unboxed(std::string_view boxed, std::string_view solution) {
  for (const std::string_view command : {"\\boxed ", "\\boxed{"}) {
    if (!boxed.starts_with(command)) continue;
    boxed.remove_prefix(command.size());
    if (command.ends_with('{')) boxed.remove_suffix(1);
    return std::string(boxed);
  }
  throw DataError(
      fmt::format("the solution's answer '{}' is not in \\boxed{{...}}: {:.200}", boxed, solution));
}

}  // namespace

std::string minerva_answer(std::string_view response) {
  static const PythonRegex answer("Final Answer: The final answer is(.*?). I hope it is correct.");
  const std::vector<std::string> groups = answer.first_match(std::string(response) + "I hope it is correct.");
  return groups.empty() ? "[invalidanswer]" : std::string(strip(groups[1]));
}

std::string normalize_minerva_answer(std::string_view answer) {
  std::string text = remove_delimited_words(std::string(split_at(answer, "=").back()));
  for (const auto& [from, to] : kReplaced) text = replace_each(text, from, to);
  text = complete_braces(unwrap(remove_expressions(std::move(text))));
  text = replace_each(text, "$", "");
  static const PythonRegex thousands(R"(\A-?\d{1,3}(,\d{3})+\Z)");
  return thousands.search(text) ? replace_each(text, ",", "") : text;
}

std::optional<std::string> last_boxed(std::string_view solution) {
  if (solution.find("\\boxed ") != std::string_view::npos) {
    return "\\boxed " + std::string(split_at(split_at(solution, "\\boxed ").back(), "$").front());
  }
  size_t start = solution.rfind("\\boxed");
  if (start == std::string_view::npos) start = solution.rfind("\\fbox");
  if (start == std::string_view::npos) return std::nullopt;
  int64_t depth = 0;
  for (size_t i = start; i < solution.size(); ++i) {
    if (solution[i] == '{') ++depth;
    if (solution[i] == '}' && --depth == 0) return std::string(solution.substr(start, i + 1 - start));
  }
  return std::nullopt;
}

std::string minerva_reference(std::string_view solution) {
  const std::optional<std::string> boxed = last_boxed(solution);
  SMOE_CHECK(DataError, boxed.has_value(),
             "a MATH solution must give its answer in \\boxed{{...}}; this one does not: {:.200}", solution);
  return normalize_minerva_answer(unboxed(*boxed, solution));
}

bool minerva_equal(std::string_view response, std::string_view solution) {
  const std::string answer = normalize_minerva_answer(minerva_answer(response));
  return !answer.empty() && answer == minerva_reference(solution);
}

}  // namespace smoe
