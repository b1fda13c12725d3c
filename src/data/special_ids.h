// Finds the ids of BOS and EOS of a Hugging Face tokenizer (internal to the tokenizers).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "json_cursor.h"

namespace smoe {

struct SpecialIds {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
};

// For each of the two, the first source that says something decides; an explicit null means "none":
//   1. tokenizer_config.json, 2. special_tokens_map.json (bos_token, eos_token), beside the tokenizer
//   3. generation_config.json, 4. config.json (bos_token_id, eos_token_id; the first of a list)
//   5. post_processor of tokenizer.json: the special token its template puts before (after) the text
// Nothing is guessed from spellings. Throws DataError for a named token that the vocabulary lacks.
SpecialIds find_special_ids(const std::filesystem::path& tokenizer_file, const JsonCursor& tokenizer,
                            const std::function<std::optional<int32_t>(std::string_view)>& id_of_token,
                            int64_t vocab_size);

}  // namespace smoe
