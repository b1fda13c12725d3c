#include "smoe/eval/rows.h"

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

std::string field_names(const nlohmann::json& object) {
  std::string names;
  for (const auto& [name, value] : object.items()) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "nothing" : names;
}

std::string json_text(const nlohmann::json& value, const std::string& where, std::string_view path) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  throw DataError(
      fmt::format("{}: field `{}` is {}; expected a text or a whole number", where, path, value.type_name()));
}

}  // namespace

std::string Row::where() const { return fmt::format("{}:{}", file_, line_); }

const nlohmann::json& Row::field(std::string_view path) const {
  const nlohmann::json* value = &value_;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string key(path.substr(begin, end - begin));
    begin = end + 1;
    if (value->is_array() && !key.empty() && key.find_first_not_of("0123456789") == std::string::npos) {
      const size_t index = std::stoul(key);
      SMOE_CHECK(DataError, index < value->size(), "{}: no element {} for `{}`; the list has {}", where(),
                 key, path, value->size());
      value = &(*value)[index];
      continue;
    }
    SMOE_CHECK(DataError, value->is_object() && value->contains(key),
               "{}: no field `{}` (the task asks for it); there {} {}", where(), path,
               value->is_object() ? "is" : "is no object but",
               value->is_object() ? field_names(*value) : value->type_name());
    value = &(*value)[key];
  }
  return *value;
}

std::string Row::text(std::string_view path) const { return json_text(field(path), where(), path); }

std::vector<std::string> Row::texts(std::string_view path) const {
  const nlohmann::json& list = field(path);
  SMOE_CHECK(DataError, list.is_array(), "{}: field `{}` is {}; expected a list of texts", where(), path,
             list.type_name());
  std::vector<std::string> texts;
  for (const nlohmann::json& value : list) texts.push_back(json_text(value, where(), path));
  return texts;
}

std::vector<Row> read_rows(const std::filesystem::path& file, int64_t limit) {
  const std::string bytes = read_file(file);
  std::vector<Row> rows;
  int64_t line_number = 0;
  for (size_t begin = 0; begin < bytes.size() && (limit == 0 || std::ssize(rows) < limit);) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view line = std::string_view(bytes).substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (strip(line).empty()) continue;
    nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
    SMOE_CHECK(DataError, value.is_object(), "{}:{}: {}; expected one JSON object a line", file.string(),
               line_number,
               value.is_discarded() ? "not valid JSON" : fmt::format("found a JSON {}", value.type_name()));
    rows.emplace_back(file.string(), line_number, std::move(value));
  }
  SMOE_CHECK(DataError, !rows.empty(), "{}: the file holds no rows; expected one JSON object a line",
             file.string());
  return rows;
}

}  // namespace smoe
