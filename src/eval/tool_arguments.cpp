#include "smoe/eval/tool_arguments.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "smoe/core/error.h"
#include "smoe/eval/flexible_dates.h"
#include "smoe/eval/python_regex.h"
#include "smoe/eval/python_text.h"

namespace smoe {
namespace {

// The stop words of NLTK's English list; those with an apostrophe cannot occur where punctuation is deleted.
constexpr std::string_view kStopWords =
    "a about above after again against ain all am an and any are aren as at be because been before being "
    "below "
    "between both but by can couldn d did didn do does doesn doing don down during each few for from further "
    "had hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it "
    "its itself just ll m ma me mightn more most mustn my myself needn no nor not now o of off on once only "
    "or "
    "other our ours ourselves out over own re s same shan she should shouldn so some such t than that the "
    "their theirs them themselves then there these they this those through to too under until up ve very was "
    "wasn we were weren what when where which while who whom why will with won wouldn y you your yours "
    "yourself yourselves";

bool is_stop_word(std::string_view word) {
  static const std::set<std::string_view> words = [] {
    const std::vector<std::string_view> list = split_at_spaces(kStopWords);
    return std::set<std::string_view>(list.begin(), list.end());
  }();
  return words.contains(word);
}

bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

std::string standard_text(const std::string& text) {
  constexpr std::string_view kDropped = " ,./-_*?+^";
  std::string result = text;
  std::erase_if(result, [&](char c) { return kDropped.find(c) != std::string_view::npos; });
  result = lower(result);
  std::ranges::replace(result, '\'', '"');
  return result;
}

bool holds_all_words(const std::string& text, const std::string& expected) {
  if (text == expected) return true;
  const std::vector<std::string_view> words = split_at_spaces(text);
  const std::vector<std::string_view> wanted = split_at_spaces(expected);
  return !wanted.empty() && std::ranges::all_of(wanted, [&](std::string_view word) {
    return std::ranges::find(words, word) != words.end();
  });
}

bool are_equal_values(const nlohmann::json& predicted, const nlohmann::json& expected,
                      ArgumentComparison comparison) {
  if (comparison == ArgumentComparison::kStrict) return are_python_equal(predicted, expected);
  if (predicted.is_array() && expected.is_array() && predicted.size() == expected.size()) {
    return std::ranges::equal(predicted, expected, [&](const auto& a, const auto& b) {
      return are_equal_values(a, b, comparison);
    });
  }
  if (!predicted.is_string() || !expected.is_string()) return are_python_equal(predicted, expected);
  const std::string text = lenient_text(predicted.get_ref<const std::string&>());
  const std::string wanted = lenient_text(expected.get_ref<const std::string&>());
  return comparison == ArgumentComparison::kBagOfWords ? holds_all_words(text, wanted) : text == wanted;
}

// Python's re.match with re.IGNORECASE: where the leftmost match is not at the beginning, none is.
bool matches_at_start(const std::string& pattern, const std::string& text) {
  const std::vector<TextRange> ranges = PythonRegex(pattern, {.ignore_case = true}).ranges(text);
  return !ranges.empty() && ranges.front().begin == 0;
}

}  // namespace

bool are_python_equal(const nlohmann::json& a, const nlohmann::json& b) {
  const auto is_number = [](const nlohmann::json& json) { return json.is_number() || json.is_boolean(); };
  const auto number = [](const nlohmann::json& json) {
    return json.is_boolean() ? nlohmann::json(json.get<bool>() ? 1 : 0) : json;
  };
  if (is_number(a) && is_number(b)) return number(a) == number(b);
  if (a.is_array() && b.is_array()) return std::ranges::equal(a, b, are_python_equal);
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    for (const auto& [key, value] : a.items()) {
      if (!b.contains(key) || !are_python_equal(value, b[key])) return false;
    }
    return true;
  }
  return a == b;
}

bool are_standard_equal(const nlohmann::json& a, const nlohmann::json& b) {
  if (!a.is_string() || !b.is_string()) return are_python_equal(a, b);
  return standard_text(a) == standard_text(b);
}

bool are_equal_arguments(const nlohmann::json& predicted, const nlohmann::json& expected,
                         ArgumentComparison comparison) {
  if (!predicted.is_object() || !expected.is_object() || predicted.size() != expected.size()) return false;
  for (const auto& [name, value] : predicted.items()) {
    if (!expected.contains(name) || !are_equal_values(value, expected[name], comparison)) return false;
  }
  return true;
}

std::string lenient_text(std::string_view text) {
  std::string plain = lower(text);
  std::erase_if(plain, is_punctuation);
  std::vector<std::string_view> words = split_at_spaces(plain);
  while (!words.empty() && is_stop_word(words.back())) words.pop_back();
  const auto first = std::ranges::find_if_not(words, is_stop_word);
  std::string result;
  for (auto word = first; word != words.end(); ++word) {
    result += (result.empty() ? "" : " ") + std::string(*word);
  }
  return result;
}

bool follows_rule(const nlohmann::json& rule, const nlohmann::json& value, const nlohmann::json& expected) {
  if (rule.contains("regex_match")) return value.is_string() && matches_at_start(rule["regex_match"], value);
  if (rule.contains("multi_choices")) {
    return std::ranges::any_of(rule["multi_choices"], [&](const nlohmann::json& choice) {
      return are_standard_equal(value, choice);
    });
  }
  if (rule["date_match"] != true) return are_standard_equal(value, expected);
  return value.is_string() &&
         are_the_same_date(value.get_ref<const std::string&>(), expected.get_ref<const std::string&>());
}

void check_argument_rules(const nlohmann::json& rules, const nlohmann::json& expected,
                          const std::string& where) {
  SMOE_CHECK(DataError, rules.is_object(), "{}: the rules of the arguments are {}; expected an object", where,
             rules.type_name());
  for (const auto& [name, rule] : rules.items()) {
    const bool is_regex = rule.is_object() && rule.contains("regex_match");
    const bool is_choice = rule.is_object() && rule.contains("multi_choices");
    const bool is_date = rule.is_object() && rule.contains("date_match");
    SMOE_CHECK(DataError, is_regex || is_choice || is_date,
               "{}: the rule of `{}` has none of the keys regex_match, multi_choices and date_match", where,
               name);
    if (is_regex) {
      SMOE_CHECK(DataError, rule["regex_match"].is_string(), "{}: regex_match of `{}` is no text", where,
                 name);
      try {
        PythonRegex check(rule["regex_match"].get_ref<const std::string&>(), {.ignore_case = true});
      } catch (const Error& error) {
        throw DataError(fmt::format("{}: regex_match of `{}`: {}", where, name, error.what()));
      }
    } else if (is_choice) {
      SMOE_CHECK(DataError, rule["multi_choices"].is_array(), "{}: multi_choices of `{}` is no list", where,
                 name);
    } else {
      const bool has_date = expected.contains(name) && expected[name].is_string();
      SMOE_CHECK(DataError, rule["date_match"] != true || has_date,
                 "{}: date_match of `{}` needs an expected text", where, name);
    }
  }
}

}  // namespace smoe
