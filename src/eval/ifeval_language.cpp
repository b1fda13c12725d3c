// IFEval's checkers of language, letter case and counts of words and sentences.
#include "ifeval_checkers.h"
#include "smoe/eval/language_detection.h"
#include "smoe/eval/python_regex.h"
#include "smoe/eval/python_text.h"

namespace smoe {
namespace {

IfevalCheck number_words(const IfevalArguments& arguments) {
  const auto threshold = static_cast<size_t>(arguments.positive("num_words"));
  const bool at_least = arguments.is_at_least("relation");
  return [=](const std::string& response) {
    static const PythonRegex words(R"(\w+)");
    return (words.count(response) >= threshold) == at_least;
  };
}

IfevalCheck number_sentences(const IfevalArguments& arguments) {
  const int64_t threshold = arguments.positive("num_sentences");
  const bool at_least = arguments.is_at_least("relation");
  return [=](const std::string& response) { return (count_sentences(response) >= threshold) == at_least; };
}

// A text whose language cannot be told follows the instruction, as in the published tool.
bool is_in_language(const std::string& response, const std::string& code) {
  return detect_language(response).value_or(code) == code;
}

IfevalCheck response_language(const IfevalArguments& arguments) {
  const std::string code = arguments.text("language");
  return [code](const std::string& response) { return is_in_language(response, code); };
}

IfevalCheck english_capital(const IfevalArguments&) {
  return [](const std::string& response) { return is_upper(response) && is_in_language(response, "en"); };
}

IfevalCheck english_lowercase(const IfevalArguments&) {
  return [](const std::string& response) { return is_lower(response) && is_in_language(response, "en"); };
}

IfevalCheck capital_word_frequency(const IfevalArguments& arguments) {
  const int64_t threshold = arguments.positive("capital_frequency");
  const bool at_least = arguments.is_at_least("capital_relation");
  return
      [=](const std::string& response) { return (count_capital_words(response) >= threshold) == at_least; };
}

}  // namespace

std::vector<IfevalBuilder> ifeval_language_builders() {
  return {
      {"change_case:capital_word_frequency", capital_word_frequency, true},
      {"change_case:english_capital", english_capital, true},
      {"change_case:english_lowercase", english_lowercase, true},
      {"language:response_language", response_language, true},
      {"length_constraints:number_sentences", number_sentences, true},
      {"length_constraints:number_words", number_words},
  };
}

}  // namespace smoe
