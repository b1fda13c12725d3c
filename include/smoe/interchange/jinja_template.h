// Chat templates as the Jinja text that Hugging Face's tokenizers keep in tokenizer_config.json.
#pragma once

#include <optional>
#include <string>

#include "smoe/data/chat_template.h"

namespace smoe {

// Jinja that renders dialogues as ChatRenderer does, up to white space that is not ASCII where content is
// trimmed. It begins with a comment that holds the template as YAML, so that it can be read back.
std::string to_jinja(const ChatTemplate& chat);

// The template, if `jinja` is what to_jinja writes for one; nullopt for all other Jinja, which would have to
// be executed to be understood.
std::optional<ChatTemplate> from_jinja(const std::string& jinja);

}  // namespace smoe
