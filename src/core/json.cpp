#include "smoe/core/json.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json_depth.h"

namespace smoe {
namespace {

// nlohmann's messages start with "[json.exception.parse_error.101] parse error at line 1, column 2: ".
std::string_view without_prefix(std::string_view message) {
  if (const size_t bracket = message.find("] ");
      message.starts_with("[json.") && bracket != std::string_view::npos) {
    message.remove_prefix(bracket + 2);
  }
  if (const size_t colon = message.find(": ");
      message.starts_with("parse error") && colon != std::string_view::npos) {
    message.remove_prefix(colon + 2);
  }
  return message;
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& label) {
  SMOE_CHECK(DataError, !is_too_deep_json(text), "{}: the JSON nests more than {} levels deep", label,
             kMaxJsonDepth);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    // `byte` counts from 1 and may lie one past the end.
    const std::string_view before =
        text.substr(0, std::min(text.size(), error.byte == 0 ? 0 : error.byte - 1));
    const auto line = std::ranges::count(before, '\n') + 1;
    const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    throw DataError(fmt::format("{}:{}:{}: not valid JSON (byte {}): {}", label, line,
                                before.size() - line_start + 1, error.byte, without_prefix(error.what())));
  } catch (const nlohmann::json::exception& error) {
    // A number too large for any type has no position.
    throw DataError(fmt::format("{}: not usable JSON: {}", label, without_prefix(error.what())));
  }
}

nlohmann::json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

void write_json_atomically(const std::filesystem::path& path, const nlohmann::json& value, int indent) {
  std::string text;
  try {
    text = value.dump(indent);
  } catch (const nlohmann::json::type_error& error) {
    throw DataError(
        fmt::format("{}: cannot be written as JSON: {}", path.string(), without_prefix(error.what())));
  }
  write_file_atomically(path, text + "\n");
}

}  // namespace smoe
