// Walks a JSON document that others wrote, so that every complaint names the file and the path in it
// (internal to the tokenizers).
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smoe {

// Reads and parses a JSON file. Throws DataError with the place of a syntax error.
nlohmann::json parse_json_file(const std::filesystem::path& file);

// One value of a document and where it is. Refers to the document and the file name: both must outlive it.
class JsonCursor {
 public:
  JsonCursor(const nlohmann::json& root, const std::filesystem::path& file) : value_(&root), file_(&file) {}

  // The member `key`; `find` takes an absent member and null for the same, `at` refuses both.
  std::optional<JsonCursor> find(std::string_view key) const;
  JsonCursor at(std::string_view key) const;
  bool has(std::string_view key) const;

  std::string string() const;
  bool boolean() const;
  int64_t integer() const;
  std::vector<JsonCursor> items() const;
  // The member `key` or, where it is absent or null, `otherwise`.
  std::string string_or(std::string_view key, std::string_view otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;

  // Throws unless every member is one of `allowed`: an unknown one may change what the file means.
  void allow_keys(std::initializer_list<std::string_view> allowed) const;

  const nlohmann::json& value() const { return *value_; }
  // Throws DataError "FILE: PATH: `problem`".
  [[noreturn]] void fail(std::string_view problem) const;

 private:
  JsonCursor(const nlohmann::json& value, const std::filesystem::path& file, std::string path)
      : value_(&value), file_(&file), path_(std::move(path)) {}
  [[noreturn]] void fail_type(std::string_view expected) const;

  const nlohmann::json* value_;
  const std::filesystem::path* file_;
  std::string path_;
};

}  // namespace smoe
