#include "smoe/infer/prompts.h"

#include <sstream>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/data/utf8_validity.h"

namespace smoe {
namespace {

std::string prompt_of_object(const std::string& line, const std::string& where) {
  const nlohmann::json value = parse_json(line, where);
  SMOE_CHECK(DataError, value.is_object() && value.contains("prompt") && value["prompt"].is_string(),
             "{}: expected an object with the text field `prompt`, found {}", where, value.dump());
  return value["prompt"].get<std::string>();
}

}  // namespace

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text, BosPolicy policy) {
  std::vector<int32_t> ids = tokenizer.encode(text);
  if (const std::optional<int32_t> leading = leading_token(tokenizer, policy)) {
    ids.insert(ids.begin(), *leading);
  }
  return ids;
}

void check_utf8_text(std::string_view text, const std::string& where) {
  const std::optional<int64_t> offset = first_invalid_utf8(text);
  if (!offset) return;
  throw DataError(fmt::format("{}: invalid UTF-8 at byte {} (0x{:02X}); convert the text to UTF-8", where,
                              *offset + 1, static_cast<unsigned char>(text[static_cast<size_t>(*offset)])));
}

std::vector<std::string> read_prompts(const std::filesystem::path& file) {
  std::istringstream lines(read_file(file));
  const bool is_jsonl = file.extension() == ".jsonl";
  std::vector<std::string> prompts;
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", file.string(), number);
    check_utf8_text(line, where);
    prompts.push_back(is_jsonl ? prompt_of_object(line, where) : line);
  }
  SMOE_CHECK(DataError, !prompts.empty(), "{}: the file has no prompts; write one a line", file.string());
  return prompts;
}

DialogueEncoder plain_dialogue(const Tokenizer& tokenizer, BosPolicy policy) {
  return [&tokenizer, policy](const std::vector<DialogueTurn>& turns) {
    std::string text;
    for (const DialogueTurn& turn : turns) text += turn.text;
    return DialoguePrompt{encode_prompt(tokenizer, text, policy)};
  };
}

}  // namespace smoe
