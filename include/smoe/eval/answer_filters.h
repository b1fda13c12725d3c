// From generated text to an answer, and from answers to right or wrong: the filters and the exact_match
// metric of lm-evaluation-harness. math_answers.h has what MATH needs besides.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/core/config.h"
#include "smoe/eval/python_regex.h"

namespace smoe {

// What a response without an answer becomes.
inline constexpr std::string_view kInvalidAnswer = "[invalid]";

// A response becomes one of the matches of a Python regular expression.
struct RegexFilterConfig {
  std::string pattern;
  int64_t match = 0;
};
template <class Visitor>
void visit_fields(Visitor& visitor, RegexFilterConfig& config) {
  visitor.field("pattern", config.pattern, "regular expression with the syntax of Python's re");
  visitor.field("match", config.match, "which of all matches: 0 is the first, -1 the last");
}

class RegexFilter {
 public:
  explicit RegexFilter(const RegexFilterConfig& config);
  // The chosen match without white space at its ends: its only group, the first of several groups that is not
  // empty, or all of it if the pattern has no group. "[invalid]" where there is no such match, or all of
  // several groups are empty.
  std::string apply(std::string_view response) const;

 private:
  PythonRegex regex_;
  int64_t match_;
};

// The filter remove_whitespace.
std::string remove_whitespace(std::string_view response);

// The first of the samples of a row. Throws DataError if there is none.
const std::string& take_first(std::span<const std::string> samples);

// What exact_match leaves out of prediction and reference before it compares them, in this order.
struct ExactMatchConfig {
  std::vector<std::string> regexes_to_ignore;
  bool ignore_case = false;
  bool ignore_punctuation = false;
};
template <class Visitor>
void visit_fields(Visitor& visitor, ExactMatchConfig& config) {
  visitor.field("regexes_to_ignore", config.regexes_to_ignore,
                "Python regular expressions whose matches are deleted, one after the other");
  visitor.field("ignore_case", config.ignore_case, "compare in lower case");
  visitor.field("ignore_punctuation", config.ignore_punctuation, "delete ASCII punctuation");
}

class ExactMatch {
 public:
  explicit ExactMatch(const ExactMatchConfig& config);
  std::string normalize(std::string_view text) const;
  bool equal(std::string_view prediction, std::string_view reference) const;
  // Whether any reference equals the prediction. Throws DataError if there is none.
  bool any_equal(std::string_view prediction, std::span<const std::string> references) const;

 private:
  std::vector<PythonRegex> regexes_;
  ExactMatchConfig config_;
};

// The published settings of GSM8K (references are whole solutions) and TriviaQA (references are all aliases
// of the answer; the filter is remove_whitespace).
RegexFilterConfig gsm8k_strict_filter();
RegexFilterConfig gsm8k_flexible_filter();
RegexFilterConfig gsm8k_chain_of_thought_filter();
ExactMatchConfig gsm8k_exact_match();
ExactMatchConfig triviaqa_exact_match();

}  // namespace smoe
