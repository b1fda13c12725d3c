// What the two judged benchmarks share in building prompts and reading their settings (internal).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smoe/eval/judge_client.h"
#include "smoe/eval/rows.h"

namespace smoe {

// Replaces every {name} by its value, in one pass: braces in the values stay as they are.
std::string fill_placeholders(std::string_view text,
                              const std::vector<std::pair<std::string_view, std::string_view>>& values);

// The messages of a template with roles between <|im_start|>ROLE and <|im_end|>. Throws DataError with
// `where`.
std::vector<JudgeMessage> parse_chat_template(std::string_view text, const std::string& where);

// A number among the judge's settings. Throws DataError if it is missing or none.
double judge_number(const Row& settings, const char* key);

// The single object of a settings file.
Row read_judge_settings(const std::filesystem::path& file);

}  // namespace smoe
