#include "smoe/core/config_visitors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "smoe/core/files.h"
#include "smoe/core/text_distance.h"

namespace smoe {

bool Range::unlimited() const { return std::isinf(low) && std::isinf(high); }

std::string Range::text() const {
  if (unlimited()) return "";
  const std::string low_text = detail::shortest_text(low);
  const std::string high_text = detail::shortest_text(high);
  if (std::isinf(high)) return fmt::format("{} {}", open_low ? "above" : "at least", low_text);
  if (std::isinf(low)) return fmt::format("at most {}", high_text);
  return open_low ? fmt::format("above {} and at most {}", low_text, high_text)
                  : fmt::format("from {} to {}", low_text, high_text);
}

namespace detail {
namespace {

void add_wrong_type(const ReadPlace& place, std::string_view expected) {
  const bool needless_quotes = place.node.kind == ConfigNodeKind::kScalar && place.node.quoted;
  place.problems.add(place.node.mark, place.path,
                     fmt::format("expected {}, found {}{}", expected, place.node.description(),
                                 needless_quotes ? "; remove the quotes" : ""));
}

// The text of an unquoted scalar, or nullptr.
const std::string* plain_scalar(const ConfigNode& node) {
  return node.kind == ConfigNodeKind::kScalar && !node.quoted ? &node.scalar : nullptr;
}

void check_range(const ReadPlace& place, double value, const Range& range) {
  // An infinite setting passes every lower limit, and shows only later, as NaN in some sum.
  if (std::isfinite(value) && range.contains(value)) return;
  const std::string allowed = std::isfinite(value) ? range.text() : "finite numbers";
  place.problems.add(place.node.mark, place.path,
                     fmt::format("{} is out of range; allowed: {}", place.node.scalar, allowed));
}

// Parses the whole of `text`, which std::from_chars would do up to the first foreign character.
// A leading plus sign is allowed, as in YAML.
template <class Number>
std::errc parse_whole(std::string_view text, Number& value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return error;
  return end == text.data() + text.size() ? std::errc() : std::errc::invalid_argument;
}

// The number that `text` spells, also YAML's spelling of infinity, which check_range refuses; NaN is no
// number.
std::optional<double> parse_double(std::string_view text) {
  if (text == ".inf" || text == "+.inf") return std::numeric_limits<double>::infinity();
  if (text == "-.inf") return -std::numeric_limits<double>::infinity();
  double value = 0.0;
  // from_chars also takes the words inf and nan, which YAML reads as text.
  if (text.find_first_of("nN") != std::string_view::npos) return std::nullopt;
  if (parse_whole(text, value) != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

void read_scalar(const ReadPlace& place, bool& value, const Range& /*range*/) {
  const std::string* text = plain_scalar(place.node);
  if (text == nullptr || (*text != "true" && *text != "false")) return add_wrong_type(place, "true or false");
  value = *text == "true";
}

void read_scalar(const ReadPlace& place, int64_t& value, const Range& range) {
  const std::string* text = plain_scalar(place.node);
  if (text == nullptr) return add_wrong_type(place, "an integer");
  int64_t parsed = 0;
  const std::errc error = parse_whole(*text, parsed);
  if (error == std::errc::result_out_of_range) return add_wrong_type(place, "an integer of at most 64 bits");
  if (error != std::errc()) {
    // 4e6 is how people write token counts; above 2^53 a double is no longer exact.
    constexpr double kLargestExact = 9007199254740992.0;
    const std::optional<double> number =
        text->find_first_of("eE") == std::string::npos ? std::nullopt : parse_double(*text);
    if (!number || *number != std::trunc(*number) || std::abs(*number) > kLargestExact) {
      return add_wrong_type(place, "an integer");
    }
    parsed = static_cast<int64_t>(*number);
  }
  check_range(place, static_cast<double>(parsed), range);
  value = parsed;
}

void read_scalar(const ReadPlace& place, double& value, const Range& range) {
  const std::string* text = plain_scalar(place.node);
  const std::optional<double> parsed = text == nullptr ? std::nullopt : parse_double(*text);
  if (!parsed) return add_wrong_type(place, "a number");
  check_range(place, *parsed, range);
  value = *parsed;
}

void read_scalar(const ReadPlace& place, std::string& value, const Range& /*range*/) {
  if (place.node.kind != ConfigNodeKind::kScalar) return add_wrong_type(place, "text (\"\" for empty text)");
  value = place.node.scalar;
}

int read_enum_index(const ReadPlace& place, const EnumNameList& names) {
  if (place.node.kind == ConfigNodeKind::kScalar) {
    const auto found = std::ranges::find(names, place.node.scalar);
    if (found != names.end()) return static_cast<int>(found - names.begin());
  }
  const std::string hint = place.node.kind == ConfigNodeKind::kScalar
                               ? did_you_mean(place.node.scalar, {names.begin(), names.end()})
                               : "";
  place.problems.add(
      place.node.mark, place.path,
      fmt::format("found {};{} allowed: {}", place.node.description(), hint, fmt::join(names, ", ")));
  return -1;
}

bool means_auto(const ConfigNode& node) {
  const std::string* text = plain_scalar(node);
  return node.kind == ConfigNodeKind::kNull || (text != nullptr && *text == "auto");
}

bool expect_sequence(const ReadPlace& place) {
  if (place.node.kind == ConfigNodeKind::kSequence) return true;
  if (place.node.kind == ConfigNodeKind::kMapping && place.node.mark.line == 0) {
    add_wrong_type(place, "a list (an override reaches only into a list that a file sets)");
  } else {
    add_wrong_type(place, "a list");
  }
  return false;
}

std::string element_path(const std::string& path, size_t index) { return fmt::format("{}.{}", path, index); }

void ReadVisitor::report_unknown_keys() const {
  for (const ConfigEntry& entry : node_.entries) {
    if (std::ranges::find(known_keys_, entry.key) != known_keys_.end()) continue;
    problems_.add(entry.mark, join_config_path(path_, entry.key),
                  fmt::format("unknown key;{} allowed: {}", did_you_mean(entry.key, known_keys_),
                              fmt::join(known_keys_, ", ")));
  }
}

void report_not_a_mapping(const ReadPlace& place, const std::vector<std::string>& allowed) {
  add_wrong_type(place, fmt::format("a mapping with the keys {}", fmt::join(allowed, ", ")));
}

std::string hash_text(const std::string& text) { return sha256_of_bytes(text); }

}  // namespace detail
}  // namespace smoe
