// IFEval's checkers of certain words, letters and of how a response begins and ends.
#include <memory>

#include "ifeval_checkers.h"
#include "smoe/eval/python_regex.h"
#include "smoe/eval/python_text.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

// std::function wants copies, and expressions cannot be copied.
using SharedRegex = std::shared_ptr<const PythonRegex>;

SharedRegex ignoring_case(const std::string& pattern) {
  return std::make_shared<const PythonRegex>(pattern, PythonRegexFlags{.ignore_case = true});
}

// Keywords are regular expressions, as in the published tool.
IfevalCheck existence(const IfevalArguments& arguments) {
  std::vector<SharedRegex> keywords;
  for (const std::string& keyword : arguments.texts("keywords")) keywords.push_back(ignoring_case(keyword));
  return [keywords](const std::string& response) {
    for (const SharedRegex& keyword : keywords) {
      if (!keyword->search(response)) return false;
    }
    return true;
  };
}

IfevalCheck frequency(const IfevalArguments& arguments) {
  const SharedRegex keyword = ignoring_case(std::string(strip(arguments.text("keyword"))));
  const auto threshold = static_cast<size_t>(arguments.positive("frequency"));
  const bool at_least = arguments.is_at_least("relation");
  return [=](const std::string& response) { return (keyword->count(response) >= threshold) == at_least; };
}

IfevalCheck forbidden_words(const IfevalArguments& arguments) {
  std::vector<SharedRegex> words;
  for (const std::string& word : arguments.texts("forbidden_words")) {
    words.push_back(ignoring_case("\\b" + word + "\\b"));
  }
  return [words](const std::string& response) {
    for (const SharedRegex& word : words) {
      if (word->search(response)) return false;
    }
    return true;
  };
}

// Two published rows ask for '#' and '!': they are counted like letters. The published tool draws a random
// letter for them.
IfevalCheck letter_frequency(const IfevalArguments& arguments) {
  const std::string letter = arguments.text("letter");
  if (count_code_points(letter) != 1 || strip(letter).empty()) {
    arguments.fail("letter", '"' + letter + '"', "one character");
  }
  const std::string wanted = lower(letter);
  const auto threshold = static_cast<size_t>(arguments.positive("let_frequency"));
  const bool at_least = arguments.is_at_least("let_relation");
  return [=](const std::string& response) {
    return (count_occurrences(lower(response), wanted) >= threshold) == at_least;
  };
}

IfevalCheck no_comma(const IfevalArguments&) {
  return [](const std::string& response) { return response.find(',') == std::string::npos; };
}

IfevalCheck end_checker(const IfevalArguments& arguments) {
  const std::string phrase = lower(strip(arguments.text("end_phrase")));
  return [phrase](const std::string& response) {
    const std::string_view unquoted = strip_right_character(strip_left_character(strip(response), '"'), '"');
    return lower(unquoted).ends_with(phrase);
  };
}

IfevalCheck quotation(const IfevalArguments&) {
  return [](const std::string& response) {
    const std::string_view text = strip(response);
    return text.size() > 1 && text.starts_with('"') && text.ends_with('"');
  };
}

IfevalCheck repeat_prompt(const IfevalArguments& arguments) {
  const std::string prompt = lower(strip(arguments.text("prompt_to_repeat")));
  return [prompt](const std::string& response) { return lower(strip(response)).starts_with(prompt); };
}

}  // namespace

std::vector<IfevalBuilder> ifeval_wording_builders() {
  return {
      {"combination:repeat_prompt", repeat_prompt},    {"keywords:existence", existence},
      {"keywords:forbidden_words", forbidden_words},   {"keywords:frequency", frequency},
      {"keywords:letter_frequency", letter_frequency}, {"punctuation:no_comma", no_comma},
      {"startend:end_checker", end_checker},           {"startend:quotation", quotation},
  };
}

}  // namespace smoe
