#include "smoe/eval/flexible_dates.h"

#include <algorithm>
#include <string>
#include <vector>

#include "smoe/core/error.h"
#include "smoe/eval/python_regex.h"
#include "smoe/eval/python_text.h"

namespace smoe {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"jan", "feb", "mar", "apr", "may", "jun",
                                                      "jul", "aug", "sep", "oct", "nov", "dec"};
constexpr std::array<std::string_view, 12> kMonthEnds = {"uary", "ruary", "ch",     "il",   "",      "e",
                                                         "y",    "ust",   "tember", "ober", "ember", "ember"};
constexpr std::array<std::string_view, 7> kWeekdays = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};
constexpr std::array<std::string_view, 7> kWeekdayEnds = {"day", "sday",  "nesday", "rsday",
                                                          "day", "urday", "day"};
// Words that stand between the parts of a date and mean nothing.
constexpr std::array<std::string_view, 10> kFillers = {"of", "and", "at", "on", "ad",
                                                       "m",  "t",   "st", "nd", "rd"};
// Stands where something was taken out of a text, so that what followed it is still known.
constexpr const char* kTaken = "  ";
// Two-digit years up to this one belong to this century.
constexpr int64_t kLastShortYear = 74;

// The place of a name that is written out, or cut to its first three letters.
template <size_t kSize>
std::optional<int64_t> find_name(std::string_view word, const std::array<std::string_view, kSize>& starts,
                                 const std::array<std::string_view, kSize>& ends) {
  for (size_t i = 0; i < kSize; ++i) {
    const bool is_whole = word == std::string(starts[i]) + std::string(ends[i]);
    if (word == starts[i] || is_whole) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

struct Number {
  int64_t value = 0;
  bool is_year = false;  // by its digits, or too large for a day
};

Number number_of(std::string_view digits) {
  if (digits.size() > 8) return {0, false};
  const int64_t value = std::stoll(std::string(digits));
  return {value, digits.size() > 2 || value > 31};
}

// Removes the first match of `regex` from `text` and returns its groups, the whole match first.
std::vector<std::string> take(const PythonRegex& regex, std::string& text) {
  std::vector<std::string> groups = regex.first_match(text);
  if (groups.empty()) return groups;
  const TextRange range = regex.ranges(text).front();
  text = text.substr(0, range.begin) + kTaken + text.substr(range.end);
  return groups;
}

// The patterns say [0-9]: \d also means the digits of other scripts, which are no numbers to stoll.
bool take_time(std::string& text, FlexibleDate& date) {
  static const PythonRegex clock(
      R"((?<![0-9:])([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?(?:\s*([ap])\.?m\b\.?)?(?![0-9:]))");
  static const PythonRegex hour(R"((?<![0-9])([0-9]{1,2})()()\s*([ap])\.?m\b\.?)");
  static const PythonRegex offset(R"((?<=  )\s*(?:(z|utc|gmt)\b|([+-])([0-9]{2}):?([0-9]{2})(?![0-9])))");
  static const PythonRegex zone(R"((?<=  )\s*[ecmp][sd]t\b)");
  std::vector<std::string> groups = take(clock, text);
  if (groups.empty()) groups = take(hour, text);
  if (groups.empty()) return false;
  date.time[0] = std::stoll(groups[1]);
  for (size_t i = 1; i < 3; ++i) date.time[i] = groups[i + 1].empty() ? 0 : std::stoll(groups[i + 1]);
  if (!groups[4].empty()) {
    if (date.time[0] < 1 || date.time[0] > 12) date.time[0] = 99;  // refused below
    date.time[0] = date.time[0] % 12 + (groups[4] == "p" ? 12 : 0);
  }
  const std::vector<std::string> found = take(offset, text);
  if (!found.empty()) {
    const int64_t minutes = found[1].empty() ? std::stoll(found[3]) * 60 + std::stoll(found[4]) : 0;
    date.utc_offset_minutes = found[2] == "-" ? -minutes : minutes;
  } else {
    take(zone, text);
  }
  return true;
}

// What is left of the text: numbers, and the names of a month and a weekday.
struct DateWords {
  std::vector<Number> numbers;
  std::optional<int64_t> month;  // 1 to 12
  size_t month_place = 0;        // numbers before it
  std::optional<int64_t> weekday;
};

std::optional<DateWords> read_words(const std::string& text) {
  static const PythonRegex word(R"([0-9]+|[^\s0-9,;/.'-]+)");
  DateWords words;
  for (const std::vector<std::string>& match : word.find_all(text)) {
    const std::string& piece = match.front();
    if (piece.front() >= '0' && piece.front() <= '9') {
      words.numbers.push_back(number_of(piece));
      continue;
    }
    const std::string name = piece == "sept" ? "sep" : piece;
    if (const auto month = find_name(name, kMonths, kMonthEnds); month && !words.month) {
      words.month = *month + 1;
      words.month_place = words.numbers.size();
    } else if (const auto weekday = find_name(name, kWeekdays, kWeekdayEnds)) {
      words.weekday = weekday;
    } else if (name != "th" && std::ranges::find(kFillers, name) == kFillers.end()) {
      return std::nullopt;
    }
  }
  return words;
}

int64_t whole_year(int64_t year) {
  if (year >= 100) return year;
  return year + (year <= kLastShortYear ? 2000 : 1900);
}

// Which number is which, as in the American order unless the sizes say otherwise.
bool assign_numbers(const DateWords& words, FlexibleDate& date) {
  const std::vector<Number>& n = words.numbers;
  const auto set = [&](const Number* year, const Number* month, const Number* day) {
    if (year != nullptr) date.year = whole_year(year->value);
    if (month != nullptr) date.month = month->value;
    if (day != nullptr) date.day = day->value;
    return true;
  };
  if (words.month) {
    date.month = words.month;
    if (n.empty()) return true;
    if (n.size() == 1) return n[0].is_year ? set(&n[0], nullptr, nullptr) : set(nullptr, nullptr, &n[0]);
    if (n.size() > 2) return false;
    const bool year_first = n[0].is_year || (words.month_place == 2 && !n[1].is_year);
    return year_first ? set(&n[0], nullptr, &n[1]) : set(&n[1], nullptr, &n[0]);
  }
  if (n.empty()) return true;
  if (n.size() == 1) return n[0].is_year ? set(&n[0], nullptr, nullptr) : set(nullptr, nullptr, &n[0]);
  if (n.size() == 2) {
    if (n[0].is_year) return set(&n[0], &n[1], nullptr);
    if (n[1].is_year) return set(&n[1], &n[0], nullptr);
    return n[0].value > 12 ? set(nullptr, &n[1], &n[0]) : set(nullptr, &n[0], &n[1]);
  }
  if (n.size() > 3) return false;
  if (n[0].is_year) return set(&n[0], &n[1], &n[2]);
  return n[0].value > 12 ? set(&n[2], &n[1], &n[0]) : set(&n[2], &n[0], &n[1]);
}

bool is_possible(const FlexibleDate& date) {
  if (date.time[0] > 23 || date.time[1] > 59 || date.time[2] > 59) return false;
  if (date.year && (*date.year < 1 || *date.year > 9999)) return false;
  if (date.month && (*date.month < 1 || *date.month > 12)) return false;
  if (!date.day) return true;
  constexpr std::array<int64_t, 12> kDays = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  int64_t days = date.month ? kDays[static_cast<size_t>(*date.month - 1)] : 31;
  if (date.year && date.month == 2) {
    const int64_t year = *date.year;
    days = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 ? 29 : 28;
  }
  return *date.day >= 1 && *date.day <= days;
}

// "20240402" and "20240402T1030" with separators.
std::string spread_compact_date(const std::string& text) {
  static const PythonRegex with_time(R"(\b([0-9]{4})([0-9]{2})([0-9]{2})t([0-9]{2})([0-9]{2})\b)");
  static const PythonRegex date_only(R"(\b([0-9]{4})([0-9]{2})([0-9]{2})\b)");
  return date_only.substitute(with_time.substitute(text, R"(\1-\2-\3 \4:\5)"), R"(\1-\2-\3)");
}

}  // namespace

std::optional<FlexibleDate> parse_flexible_date(std::string_view text) {
  static const PythonRegex iso_separator(R"((?<=[0-9])t(?=[0-9]))");
  if (!is_utf8(text)) return std::nullopt;
  std::string rest = iso_separator.substitute(spread_compact_date(lower(text)), " ");
  FlexibleDate date;
  const bool has_time = take_time(rest, date);
  const std::optional<DateWords> words = read_words(rest);
  if (!words) return std::nullopt;
  DateWords parts = *words;
  // A number that follows a whole date is an hour.
  if (!has_time && parts.numbers.size() == (parts.month ? 3 : 4) && !parts.numbers.back().is_year) {
    date.time[0] = parts.numbers.back().value;
    parts.numbers.pop_back();
  }
  if (!assign_numbers(parts, date)) return std::nullopt;
  if (!date.day) date.weekday = parts.weekday;
  const bool is_empty = !date.year && !date.month && !date.day && !date.weekday && !has_time;
  return is_empty || !is_possible(date) ? std::nullopt : std::optional(date);
}

bool are_the_same_date(std::string_view a, std::string_view b) {
  const std::optional<FlexibleDate> left = parse_flexible_date(a);
  return left && left == parse_flexible_date(b);
}

}  // namespace smoe
