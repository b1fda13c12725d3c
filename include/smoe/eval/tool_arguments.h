// When two arguments of a function count as the same: exactly, by a rule of the benchmark, or leniently.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace smoe {

enum class ArgumentComparison {
  kStrict,      // equal values
  kLenient,     // texts are compared by lenient_text()
  kBagOfWords,  // all words of the expected lenient_text() occur in the other one
};

// Python's ==: 1, 1.0 and true are equal.
bool are_python_equal(const nlohmann::json& a, const nlohmann::json& b);

// The same, but texts without case, spaces and , . / - _ * ? + ^, and with one kind of quotes.
bool are_standard_equal(const nlohmann::json& a, const nlohmann::json& b);

// Both hold the same names, and values that are equal by `comparison`; false unless both are objects.
bool are_equal_arguments(const nlohmann::json& predicted, const nlohmann::json& expected,
                         ArgumentComparison comparison);

// In lower case, without ASCII punctuation, and without stop words at the beginning and the end.
std::string lenient_text(std::string_view text);

// Whether `value` follows a rule: {"regex_match": PATTERN}, {"multi_choices": [...]} or {"date_match": true}.
bool follows_rule(const nlohmann::json& rule, const nlohmann::json& value, const nlohmann::json& expected);

// Throws DataError, beginning with `where`, for rules that follows_rule cannot use.
void check_argument_rules(const nlohmann::json& rules, const nlohmann::json& expected,
                          const std::string& where);

}  // namespace smoe
