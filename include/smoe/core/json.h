// JSON files through nlohmann_json, with errors that name the file and the place in it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace smoe {

// Parses one JSON value. `label` stands for the file in messages. Throws DataError with label, line,
// column and byte.
nlohmann::json parse_json(std::string_view text, const std::string& label);

// The value in a file. Throws DataError if the file cannot be read or is not JSON.
nlohmann::json read_json_file(const std::filesystem::path& path);

// Writes `value` and a final newline, complete or not at all. `indent` < 0 writes one line. JSON has
// no NaN and no infinity: they are written as null. Throws Error if the file cannot be written, and
// DataError if a string is not UTF-8.
void write_json_atomically(const std::filesystem::path& path, const nlohmann::json& value, int indent = 2);

}  // namespace smoe
