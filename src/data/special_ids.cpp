#include "special_ids.h"

#include <fmt/format.h>

#include <string>

namespace smoe {
namespace {

using IdOfToken = std::function<std::optional<int32_t>(std::string_view)>;

// What a source says: nothing (absent), none (null), or an id.
struct Statement {
  bool present = false;
  std::optional<int32_t> id;
};

// A token given as "<s>" or as {"content": "<s>", ...}.
Statement token_statement(const JsonCursor& root, std::string_view key, const IdOfToken& id_of_token) {
  if (!root.has(key)) {
    return {};
  }
  const auto token = root.find(key);
  if (!token) {
    return {true, std::nullopt};
  }
  const std::string content = token->value().is_object() ? token->at("content").string() : token->string();
  const auto id = id_of_token(content);
  if (!id) {
    token->fail(fmt::format("the token '{}' is not in the vocabulary of tokenizer.json", content));
  }
  return {true, id};
}

Statement id_statement(const JsonCursor& root, std::string_view key, int64_t vocab_size) {
  auto value = root.find(key);
  if (value && value->value().is_array() && !value->value().empty()) {
    value = value->items().front();
  }
  // Configs of models write null where they leave the choice to the tokenizer.
  if (!value) {
    return {};
  }
  const int64_t id = value->integer();
  if (id < 0 || id >= vocab_size) {
    value->fail(
        fmt::format("the id {} is outside the vocabulary of tokenizer.json (0..{})", id, vocab_size - 1));
  }
  return {true, static_cast<int32_t>(id)};
}

// The special token that a TemplateProcessing puts at one end of a single text.
std::optional<int32_t> template_id(const JsonCursor& processor, bool at_start, const IdOfToken& id_of_token) {
  const std::string type = processor.at("type").string();
  if (type == "Sequence") {
    for (const JsonCursor& item : processor.at("processors").items()) {
      if (const auto id = template_id(item, at_start, id_of_token)) {
        return id;
      }
    }
  }
  if (type != "TemplateProcessing") {
    return std::nullopt;
  }
  const auto pieces = processor.at("single").items();
  if (pieces.empty()) {
    return std::nullopt;
  }
  const auto special = (at_start ? pieces.front() : pieces.back()).find("SpecialToken");
  if (!special) {
    return std::nullopt;
  }
  const JsonCursor name = special->at("id");
  const auto id = id_of_token(name.string());
  if (!id) {
    name.fail(fmt::format("the token '{}' is not in the vocabulary", name.string()));
  }
  return id;
}

}  // namespace

SpecialIds find_special_ids(const std::filesystem::path& tokenizer_file, const JsonCursor& tokenizer,
                            const IdOfToken& id_of_token, int64_t vocab_size) {
  Statement bos;
  Statement eos;
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json"}) {
    const std::filesystem::path file = tokenizer_file.parent_path() / name;
    if ((bos.present && eos.present) || !std::filesystem::exists(file)) {
      continue;
    }
    const nlohmann::json document = parse_json_file(file);
    const JsonCursor root(document, file);
    const bool names_tokens =
        std::string_view(name).starts_with("tokenizer") || std::string_view(name).starts_with("special");
    const auto read = [&](std::string_view token_key, std::string_view id_key) {
      return names_tokens ? token_statement(root, token_key, id_of_token)
                          : id_statement(root, id_key, vocab_size);
    };
    bos = bos.present ? bos : read("bos_token", "bos_token_id");
    eos = eos.present ? eos : read("eos_token", "eos_token_id");
  }
  const auto processor = tokenizer.find("post_processor");
  if (processor && !bos.present) {
    bos.id = template_id(*processor, true, id_of_token);
  }
  if (processor && !eos.present) {
    eos.id = template_id(*processor, false, id_of_token);
  }
  return {bos.id, eos.id};
}

}  // namespace smoe
