// The way of tokenizer and chat template out of a checkpoint.
#include <algorithm>

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

json id_or_null(const std::optional<int32_t>& id) { return id ? json(*id) : json(nullptr); }

std::optional<fs::path> tokenizer_file(const fs::path& checkpoint) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (fs::is_regular_file(checkpoint / name)) return checkpoint / name;
  }
  return std::nullopt;
}

json tokenizer_config(const Tokenizer& tokenizer, int64_t max_positions) {
  json config = {{"clean_up_tokenization_spaces", false}, {"model_max_length", max_positions}};
  if (tokenizer.bos_id()) config["bos_token"] = tokenizer.token(*tokenizer.bos_id());
  if (tokenizer.eos_id()) config["eos_token"] = tokenizer.token(*tokenizer.eos_id());
  if (tokenizer.path().extension() == ".json") {
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    return config;
  }
  config["tokenizer_class"] = "LlamaTokenizer";
  // The class for SentencePiece models; its older behaviour splits text around special tokens otherwise.
  config["legacy"] = false;
  config["add_bos_token"] = tokenizer.bos_id().has_value();
  config["add_eos_token"] = false;
  // A space before the first word, if the model adds one: then the space alone is a token of its own.
  const std::vector<int32_t> ids = tokenizer.encode("a");
  config["add_prefix_space"] = !ids.empty() && tokenizer.token(ids.front()).starts_with("\xe2\x96\x81");
  return config;
}

// EOS first, then the single tokens that end an answer.
json stop_ids(const Tokenizer& tokenizer, const ChatStop& stop) {
  std::vector<int32_t> ids;
  if (tokenizer.eos_id()) ids.push_back(*tokenizer.eos_id());
  for (const int32_t id : stop.tokens) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  if (ids.size() == 1) return ids.front();
  return ids.empty() ? json(nullptr) : json(ids);
}

}  // namespace

SpecialTokenIds export_tokenizer(const fs::path& checkpoint, const fs::path& folder, int64_t max_positions,
                                 std::vector<std::string>& notes) {
  const std::optional<fs::path> file = tokenizer_file(checkpoint);
  if (!file) {
    notes.emplace_back("the checkpoint has no tokenizer, so the folder has none");
    return {};
  }
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(*file);
  json config = tokenizer_config(*tokenizer, max_positions);
  SpecialTokenIds ids{id_or_null(tokenizer->bos_id()), id_or_null(tokenizer->eos_id())};
  if (fs::is_regular_file(checkpoint / kChatTemplateFile)) {
    const ChatTemplate chat = checkpoint_chat_template(checkpoint);
    const ChatRenderer renderer(chat, *tokenizer);
    config["chat_template"] = to_jinja(chat);
    ids.eos = stop_ids(*tokenizer, renderer.stop());
    for (const std::string& text : renderer.stop().texts) {
      notes.push_back(
          fmt::format("answers end with the text `{}`, which is more than one token: give it to "
                      "generate() as stop_strings",
                      text));
    }
    if (!renderer.stop().ending.empty()) {
      notes.push_back(
          fmt::format("answers end with the text `{}` before EOS: remove it from what generate() gives",
                      renderer.stop().ending));
    }
  }
  fs::copy_file(*file, folder / file->filename());
  write_json_atomically(folder / "tokenizer_config.json", config);
  json generation = json::object();
  if (!ids.bos.is_null()) generation["bos_token_id"] = ids.bos;
  if (!ids.eos.is_null()) generation["eos_token_id"] = ids.eos;
  write_json_atomically(folder / "generation_config.json", generation);
  return ids;
}

}  // namespace smoe
