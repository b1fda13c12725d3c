// What is continued: texts from a file or a dialogue, as token ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/data/bos_policy.h"
#include "smoe/data/tokenizer.h"
#include "smoe/routing/chat_segments.h"

namespace smoe {

// The leading token of `policy`, if any, then the ids of `text`.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text, BosPolicy policy);

// Throws DataError, beginning with `where`, for text that is not UTF-8.
void check_utf8_text(std::string_view text, const std::string& where);

// A file of prompts: one a line, or, for names that end in .jsonl, one object a line with the field `prompt`.
// Blank lines are skipped. Throws DataError naming file and line, also for text that is not UTF-8, and for a
// file without prompts.
std::vector<std::string> read_prompts(const std::filesystem::path& file);

struct DialogueTurn {
  std::string role;  // "system", "user" or "assistant"
  std::string text;
};

// The ids that the assistant's answer continues, and which of them are earlier answers of a template.
struct DialoguePrompt {
  std::vector<int32_t> ids;
  std::vector<ResponseSpan> responses = {};
};

// Turns a dialogue into a prompt. A chat template is one such function.
using DialogueEncoder = std::function<DialoguePrompt(const std::vector<DialogueTurn>& turns)>;

// The turns' texts one after the other, without marks of roles: what a model knows before it is fine-tuned.
// `tokenizer` must outlive the function.
DialogueEncoder plain_dialogue(const Tokenizer& tokenizer, BosPolicy policy);

}  // namespace smoe
