// Rows of a benchmark file: JSON objects that know where they came from, so that an error can name the line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace smoe {

class Row {
 public:
  Row(std::string file, int64_t line, nlohmann::json value)
      : file_(std::move(file)), line_(line), value_(std::move(value)) {}

  // The field at a dotted path (`a.b`, `list.0`) as text: strings as they are, whole numbers in decimal.
  // Throws DataError naming file, line, field and the fields there are.
  std::string text(std::string_view path) const;
  // The list of texts at a dotted path.
  std::vector<std::string> texts(std::string_view path) const;

  // "FILE:LINE" for messages.
  std::string where() const;
  int64_t line() const { return line_; }
  const nlohmann::json& value() const { return value_; }

 private:
  const nlohmann::json& field(std::string_view path) const;

  std::string file_;
  int64_t line_;
  nlohmann::json value_;
};

// Reads at most `limit` rows (0: all) of a JSONL file; blank lines are skipped. Throws DataError for a
// missing or empty file and for lines that are no JSON object.
std::vector<Row> read_rows(const std::filesystem::path& file, int64_t limit);

}  // namespace smoe
