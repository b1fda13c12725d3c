#include "smoe/eval/answer_filters.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/eval/python_text.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

bool is_punctuation(char character) {
  return (character >= '!' && character <= '/') || (character >= ':' && character <= '@') ||
         (character >= '[' && character <= '`') || (character >= '{' && character <= '~');
}

}  // namespace

RegexFilter::RegexFilter(const RegexFilterConfig& config) : regex_(config.pattern), match_(config.match) {}

std::string RegexFilter::apply(std::string_view response) const {
  const std::vector<std::vector<std::string>> matches = regex_.find_all(response);
  const auto count = static_cast<int64_t>(matches.size());
  const int64_t index = match_ < 0 ? count + match_ : match_;
  if (index < 0 || index >= count) return std::string(kInvalidAnswer);
  const std::vector<std::string>& groups = matches[static_cast<size_t>(index)];
  // A single group counts even if it is empty; this is how the published filter behaves.
  if (groups.size() == 1) return std::string(strip(groups.front()));
  const auto filled = std::ranges::find_if(groups, [](const std::string& group) { return !group.empty(); });
  return filled == groups.end() ? std::string(kInvalidAnswer) : std::string(strip(*filled));
}

std::string remove_whitespace(std::string_view response) { return std::string(strip(response)); }

const std::string& take_first(std::span<const std::string> samples) {
  SMOE_CHECK(DataError, !samples.empty(), "take_first: the row has no sample; generate at least one");
  return samples.front();
}

ExactMatch::ExactMatch(const ExactMatchConfig& config) : config_(config) {
  for (const std::string& pattern : config.regexes_to_ignore) regexes_.emplace_back(pattern);
}

std::string ExactMatch::normalize(std::string_view text) const {
  std::string result(text);
  for (const PythonRegex& regex : regexes_) result = regex.substitute(result, "");
  if (config_.ignore_case) result = lower(result);
  if (config_.ignore_punctuation) std::erase_if(result, is_punctuation);
  return result;
}

bool ExactMatch::equal(std::string_view prediction, std::string_view reference) const {
  return normalize(prediction) == normalize(reference);
}

bool ExactMatch::any_equal(std::string_view prediction, std::span<const std::string> references) const {
  SMOE_CHECK(DataError, !references.empty(), "exact_match: the row has no reference answer");
  const std::string normalized = normalize(prediction);
  return std::ranges::any_of(
      references, [&](const std::string& reference) { return normalize(reference) == normalized; });
}

RegexFilterConfig gsm8k_strict_filter() { return {R"(#### (\-?[0-9\.\,]+))", 0}; }
RegexFilterConfig gsm8k_flexible_filter() { return {R"((-?[$0-9.,]{2,})|(-?[0-9]+))", -1}; }
// The last dot is any character, so an answer that ends the text is not found.
RegexFilterConfig gsm8k_chain_of_thought_filter() { return {R"(The answer is (\-?[0-9\.\,]+).)", 0}; }

ExactMatchConfig gsm8k_exact_match() {
  return {.regexes_to_ignore = {",", R"(\$)", "(?s).*#### ", R"(\.$)"}, .ignore_case = true};
}

ExactMatchConfig triviaqa_exact_match() {
  return {.regexes_to_ignore = {}, .ignore_case = true, .ignore_punctuation = true};
}

}  // namespace smoe
