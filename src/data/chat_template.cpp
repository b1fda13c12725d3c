#include "smoe/data/chat_template.h"

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// Every <|...|> of `piece` must be listed: otherwise a tokenizer without it would silently spell it out.
void check_spellings(const std::string& key, const std::string& piece, const ChatTemplate& chat,
                     ConfigProblems& problems) {
  for (size_t begin = piece.find("<|"); begin != std::string::npos; begin = piece.find("<|", begin + 2)) {
    const size_t end = piece.find("|>", begin + 2);
    if (end == std::string::npos) return;
    const std::string spelling = piece.substr(begin, end + 2 - begin);
    if (std::ranges::find(chat.special_tokens, spelling) == chat.special_tokens.end()) {
      problems.add_rule(
          key, "special_tokens",
          fmt::format("`{}` is spelled like a special token but is not listed as one; list it", spelling));
    }
  }
}

}  // namespace

void validate(const ChatTemplate& chat, ConfigProblems& problems) {
  if (chat.name.empty()) problems.add_rule("name", "is empty; give the template a name");
  if (chat.assistant.end.empty() && !chat.assistant.end_with_eos) {
    problems.add_rule(
        "assistant.end", "assistant.end_with_eos",
        "nothing ends an answer, so that a model could not learn to stop; give `end` a text, or "
        "set end_with_eos: true");
  }
  check_spellings("system.prefix", chat.system.prefix, chat, problems);
  check_spellings("system.suffix", chat.system.suffix, chat, problems);
  check_spellings("user.prefix", chat.user.prefix, chat, problems);
  check_spellings("user.suffix", chat.user.suffix, chat, problems);
  check_spellings("assistant.prefix", chat.assistant.prefix, chat, problems);
  check_spellings("assistant.end", chat.assistant.end, chat, problems);
  check_spellings("assistant.suffix", chat.assistant.suffix, chat, problems);
  for (const std::string& spelling : chat.special_tokens) {
    if (spelling.empty()) problems.add_rule("special_tokens", "an entry is empty; remove it");
  }
}

ChatTemplate load_chat_template(const std::filesystem::path& file) {
  SMOE_CHECK(ConfigError, !file.empty(),
             "no chat template is given; name its file, for example configs/chat_templates/chatml.yaml");
  return read_config<ChatTemplate>({file, {}});
}

ChatTemplate checkpoint_chat_template(const std::filesystem::path& checkpoint) {
  const std::filesystem::path file = checkpoint / kChatTemplateFile;
  SMOE_CHECK(
      CheckpointError, std::filesystem::is_regular_file(file),
      "{}: the checkpoint has no {}, so it was not fine-tuned on dialogues; name a template explicitly, or "
      "use a fine-tuned checkpoint",
      checkpoint.string(), kChatTemplateFile);
  return load_chat_template(file);
}

}  // namespace smoe
