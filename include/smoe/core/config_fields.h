// What a config struct uses to declare its fields (ranges, names of enum values), and the kinds of fields
// that the visitors of config_visitors.h tell apart. config.h says how the parts work together.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "smoe/core/config_problems.h"

namespace smoe {

// ---- Names of enum values -------------------------------------------------------------------

// Specialised for every enum of a config: `static constexpr std::array values = {enum_name(...), ...}`.
template <class Enum>
struct EnumNames;

template <class Enum>
constexpr std::pair<Enum, std::string_view> enum_name(Enum value, std::string_view name) {
  return {value, name};
}

// The name of `value`; "?" for a value that EnumNames does not list.
template <class Enum>
constexpr std::string_view enum_to_name(Enum value) {
  for (const auto& [candidate, name] : EnumNames<Enum>::values) {
    if (candidate == value) return name;
  }
  return "?";
}

// The value called `name`, if there is one.
template <class Enum>
constexpr std::optional<Enum> enum_from_name(std::string_view name) {
  for (const auto& [value, candidate] : EnumNames<Enum>::values) {
    if (candidate == name) return value;
  }
  return std::nullopt;
}

// ---- Ranges ---------------------------------------------------------------------------------

// The allowed values of a number, which is finite in any case. Applies to each element of a list, and to a
// set optional.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false;  // `low` itself is not allowed

  bool contains(double value) const { return (open_low ? value > low : value >= low) && value <= high; }
  bool unlimited() const;
  // "at least 1", "above 0", "from 0 to 1"; "" without limits.
  std::string text() const;
};

inline Range at_least(double low) { return {.low = low}; }
inline Range positive() { return {.low = 0.0, .open_low = true}; }
inline Range between(double low, double high) { return {.low = low, .high = high}; }

namespace detail {

// ---- Kinds of fields ------------------------------------------------------------------------

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
concept PlainScalar = std::same_as<T, bool> || std::same_as<T, int64_t> || std::same_as<T, double> ||
    std::same_as<T, std::string>;
template <class T>
concept ConfigScalar = PlainScalar<T> || std::is_enum_v<T>;

// Has a cross-field check, found by argument-dependent lookup.
template <class T>
concept HasValidate = requires(const T& config, ConfigProblems& problems) {
  validate(config, problems);
};

using EnumNameList = std::vector<std::string_view>;
template <class Enum>
EnumNameList enum_name_list() {
  EnumNameList names;
  for (const auto& entry : EnumNames<Enum>::values) names.push_back(entry.second);
  return names;
}

}  // namespace detail
}  // namespace smoe
