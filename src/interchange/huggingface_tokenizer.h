// Tokenizer and chat template between a checkpoint and a Hugging Face folder. Private to the interchange
// area.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace smoe {

// Ids for config.json and generation_config.json; null where there are none.
struct SpecialTokenIds {
  nlohmann::json bos;
  nlohmann::json eos;  // with a chat template, a list: EOS and what ends an answer
};

// Writes tokenizer, tokenizer_config.json and generation_config.json into `folder`. Without a tokenizer in
// the checkpoint it adds a note instead.
SpecialTokenIds export_tokenizer(const std::filesystem::path& checkpoint, const std::filesystem::path& folder,
                                 int64_t max_positions, std::vector<std::string>& notes);

// Writes tokenizer (`tokenizer`, if not empty, instead of the folder's), special_tokens_map.json and
// chat_template.yaml (`chat_template`, if not empty) into `checkpoint`. Throws DataError if our tokenizers
// cannot read it, ConfigError for a template that does not fit the tokenizer.
void import_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& checkpoint,
                      const std::filesystem::path& tokenizer, const std::filesystem::path& chat_template,
                      std::vector<std::string>& notes);

}  // namespace smoe
