// The way of tokenizer and chat template into a checkpoint.
#include <fmt/ranges.h>

#include "huggingface_tokenizer.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/data/chat_renderer.h"
#include "smoe/data/chat_template.h"
#include "smoe/data/tokenizer.h"
#include "smoe/interchange/jinja_template.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Tokens that tokenizer.json adds to the vocabulary of a SentencePiece model beside it.
void note_lost_tokens(const fs::path& json_file, const Tokenizer& tokenizer,
                      std::vector<std::string>& notes) {
  const json document = read_json_file(json_file);
  const auto added = document.is_object() ? document.find("added_tokens") : document.end();
  if (added == document.end() || !added->is_array()) return;
  std::vector<std::string> lost;
  for (const json& token : *added) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) continue;
    const auto content = token["content"].get<std::string>();
    if (!tokenizer.token_id(content)) lost.push_back(content);
  }
  if (lost.empty()) return;
  notes.push_back(fmt::format("tokenizer.model is used, which lacks tokens that tokenizer.json adds: {}",
                              fmt::join(lost, " ")));
}

// Byte-level BPE is read from tokenizer.json; other kinds of it mostly come from a SentencePiece model, which
// is then beside it.
std::unique_ptr<Tokenizer> find_tokenizer(const fs::path& folder, std::vector<std::string>& notes) {
  const fs::path json_file = folder / "tokenizer.json";
  const fs::path model_file = folder / "tokenizer.model";
  if (fs::is_regular_file(json_file)) {
    try {
      return load_tokenizer(json_file);
    } catch (const DataError& error) {
      SMOE_CHECK(DataError, fs::is_regular_file(model_file),
                 "{}\nThere is no SentencePiece tokenizer.model in {} that could be used instead; name a "
                 "tokenizer with --tokenizer",
                 error.what(), folder.string());
    }
  }
  SMOE_CHECK(DataError, fs::is_regular_file(model_file),
             "{}: neither tokenizer.json nor tokenizer.model is there; name a tokenizer with --tokenizer",
             folder.string());
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(model_file);
  if (fs::is_regular_file(json_file)) note_lost_tokens(json_file, *tokenizer, notes);
  return tokenizer;
}

// The Jinja text of the folder: a file of its own since transformers 4.43, before that in the config.
std::optional<std::string> find_jinja(const fs::path& folder) {
  if (fs::is_regular_file(folder / "chat_template.jinja")) return read_file(folder / "chat_template.jinja");
  if (!fs::is_regular_file(folder / "tokenizer_config.json")) return std::nullopt;
  const json config = read_json_file(folder / "tokenizer_config.json");
  if (!config.is_object() || !config.contains("chat_template")) return std::nullopt;
  const json& chat = config["chat_template"];
  if (chat.is_string()) return chat.get<std::string>();
  // A list of named templates: none of ours.
  return chat.is_null() ? std::nullopt : std::optional(chat.dump());
}

std::string similar_template(const std::string& jinja) {
  if (jinja.find("<|im_start|>") != std::string::npos) return "configs/chat_templates/chatml.yaml";
  if (jinja.find("<|start_header_id|>") != std::string::npos) return "configs/chat_templates/llama3.yaml";
  return "one like configs/chat_templates/plain.yaml";
}

std::optional<ChatTemplate> find_chat_template(const fs::path& folder, const fs::path& given,
                                               std::vector<std::string>& notes) {
  if (!given.empty()) return load_chat_template(given);
  if (fs::is_regular_file(folder / kChatTemplateFile)) return load_chat_template(folder / kChatTemplateFile);
  const std::optional<std::string> jinja = find_jinja(folder);
  if (!jinja) return std::nullopt;
  std::optional<ChatTemplate> chat = from_jinja(*jinja);
  if (!chat) {
    notes.push_back(
        fmt::format("the folder's chat template is Jinja that would have to be executed, and is not carried "
                    "over; compare it with {} and name the file that fits with --chat-template",
                    similar_template(*jinja)));
  }
  return chat;
}

}  // namespace

void import_tokenizer(const fs::path& folder, const fs::path& checkpoint, const fs::path& given,
                      const fs::path& chat_template, std::vector<std::string>& notes) {
  const std::unique_ptr<Tokenizer> tokenizer =
      given.empty() ? find_tokenizer(folder, notes) : load_tokenizer(given);
  const bool is_json = tokenizer->path().extension() == ".json";
  fs::copy_file(tokenizer->path(), checkpoint / (is_json ? "tokenizer.json" : "tokenizer.model"));
  if (is_json) {
    const auto spelling = [&](const std::optional<int32_t>& id) {
      return id ? json(tokenizer->token(*id)) : json(nullptr);
    };
    write_json_atomically(
        checkpoint / "special_tokens_map.json",
        {{"bos_token", spelling(tokenizer->bos_id())}, {"eos_token", spelling(tokenizer->eos_id())}});
  }
  const std::optional<ChatTemplate> chat = find_chat_template(folder, chat_template, notes);
  if (!chat) return;
  ChatRenderer(*chat, *tokenizer);  // throws where tokenizer and template do not fit
  write_file_atomically(checkpoint / kChatTemplateFile, dump_config(*chat));
}

}  // namespace smoe
