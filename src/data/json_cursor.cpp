#include "json_cursor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/core/json.h"

namespace smoe {

nlohmann::json parse_json_file(const std::filesystem::path& file) { return read_json_file(file); }

std::optional<JsonCursor> JsonCursor::find(std::string_view key) const {
  if (!value_->is_object()) {
    fail_type("an object");
  }
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) {
    return std::nullopt;
  }
  return JsonCursor(*found, *file_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

JsonCursor JsonCursor::at(std::string_view key) const {
  auto found = find(key);
  if (!found) {
    fail(fmt::format("the key '{}' is missing", key));
  }
  return *found;
}

bool JsonCursor::has(std::string_view key) const { return value_->is_object() && value_->contains(key); }

std::string JsonCursor::string() const {
  if (!value_->is_string()) {
    fail_type("a string");
  }
  return value_->get<std::string>();
}

bool JsonCursor::boolean() const {
  if (!value_->is_boolean()) {
    fail_type("true or false");
  }
  return value_->get<bool>();
}

int64_t JsonCursor::integer() const {
  if (!value_->is_number_integer()) {
    fail_type("an integer");
  }
  return value_->get<int64_t>();
}

std::vector<JsonCursor> JsonCursor::items() const {
  if (!value_->is_array()) {
    fail_type("a list");
  }
  std::vector<JsonCursor> items;
  items.reserve(value_->size());
  for (size_t index = 0; index < value_->size(); ++index) {
    items.push_back(JsonCursor((*value_)[index], *file_, fmt::format("{}[{}]", path_, index)));
  }
  return items;
}

std::string JsonCursor::string_or(std::string_view key, std::string_view otherwise) const {
  const auto found = find(key);
  return found ? found->string() : std::string(otherwise);
}

bool JsonCursor::boolean_or(std::string_view key, bool otherwise) const {
  const auto found = find(key);
  return found ? found->boolean() : otherwise;
}

void JsonCursor::allow_keys(std::initializer_list<std::string_view> allowed) const {
  if (!value_->is_object()) {
    fail_type("an object");
  }
  for (const auto& [key, unused] : value_->items()) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      fail(fmt::format("the key '{}' is not supported; supported are: {}", key, fmt::join(allowed, ", ")));
    }
  }
}

void JsonCursor::fail(std::string_view problem) const {
  throw DataError(fmt::format("{}: {}: {}", file_->string(), path_.empty() ? "top level" : path_, problem));
}

void JsonCursor::fail_type(std::string_view expected) const {
  std::string found = value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (found.size() > 60) {
    found = found.substr(0, 57) + "...";
  }
  fail(fmt::format("expected {}, found {}", expected, found));
}

}  // namespace smoe
