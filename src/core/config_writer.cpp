// Writes config values as YAML that reads back to the same values.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "smoe/core/config_visitors.h"

namespace smoe::detail {
namespace {

bool is_plain_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '/' || c == '-' || c == '+';
}

// Whether YAML (of any version) reads the bare text as this text, also inside [a, b].
bool is_safe_plain(std::string_view text) {
  static constexpr std::array kReserved = {"true", "false", "yes", "no", "on",  "off",
                                           "null", "auto",  "y",   "n",  "nan", "inf"};
  if (text.empty() || !std::ranges::all_of(text, is_plain_character)) return false;
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  if (std::ranges::find(kReserved, lower) != kReserved.end()) return false;
  // Anything that starts like a number or a marker is quoted, so that no reader need think about it.
  const char first = text.front();
  const bool letter_first = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z') || first == '_';
  return letter_first || first == '/' || text.starts_with("./") || text.starts_with("../");
}

std::string quoted_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\t':
        quoted += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          quoted += c;
        }
    }
  }
  return quoted + "\"";
}

}  // namespace

std::string scalar_text(bool value) { return value ? "true" : "false"; }

std::string scalar_text(int64_t value) { return fmt::format("{}", value); }

std::string shortest_text(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end};
}

std::string scalar_text(double value) {
  std::string text = shortest_text(value);
  // YAML 1.1 readers, such as Python's, take 1e-05 for text and 1 for an integer.
  if (std::isfinite(value) && text.find('.') == std::string::npos) {
    text.insert(std::min(text.find('e'), text.size()), ".0");
  }
  return text;
}

std::string scalar_text(const std::string& value) {
  return is_safe_plain(value) ? value : quoted_text(value);
}

void YamlWriter::line(std::string_view key, std::string_view value, std::string_view comment) {
  std::string prefix(static_cast<size_t>(depth_) * 2, ' ');
  if (item_starts_) prefix.replace(prefix.size() - 2, 2, "- ");
  item_starts_ = false;
  if (comment_depth_ >= 0) prefix.insert(static_cast<size_t>(comment_depth_) * 2, "# ");
  text_ += prefix;
  text_ += key;
  text_ += ':';
  if (!value.empty()) text_ += fmt::format(" {}", value);
  if (!comment.empty()) text_ += fmt::format("  # {}", comment);
  text_ += '\n';
}

std::string plural(std::string type) {
  return type.starts_with("one of") || type.ends_with("false") ? type : type + "s";
}

std::string names_text(const EnumNameList& names) {
  return fmt::format("one of {}", fmt::join(names, " | "));
}

std::string field_comment(std::string type, const Range& range, std::string_view meaning) {
  const std::string limits = range.text();
  if (!limits.empty()) type += ", " + limits;
  return fmt::format("{}. {}", type, meaning);
}

}  // namespace smoe::detail
