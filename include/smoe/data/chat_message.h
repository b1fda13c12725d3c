// Dialogues as messages, and how they are read from JSON lines.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/core/config.h"
#include "smoe/data/document_reader.h"

namespace smoe {

enum class ChatRole { kSystem, kUser, kAssistant };
template <>
struct EnumNames<ChatRole> {
  static constexpr std::array values = {enum_name(ChatRole::kSystem, "system"),
                                        enum_name(ChatRole::kUser, "user"),
                                        enum_name(ChatRole::kAssistant, "assistant")};
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content;  // UTF-8

  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

using Conversation = std::vector<ChatMessage>;

// The conversation under the key `messages` of a JSON line: a list of objects with the keys `role` and
// `content`, both strings. An optional system message comes first; then user and assistant in turn, the last
// one the assistant's. Other keys of the line are ignored; other keys of a message are refused, because they
// would change what it means. Throws DataError with file:line and the path of the key.
Conversation parse_conversation(const DocumentRecord& record);

// The same rules for a dialogue that waits for an answer: the last message is the user's. `label` stands for
// its origin in the message of the DataError.
void check_open_dialogue(const Conversation& messages, std::string_view label);

}  // namespace smoe
