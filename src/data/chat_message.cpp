#include "smoe/data/chat_message.h"

#include <fmt/ranges.h>

#include "document_json.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

[[noreturn]] void fail(std::string_view place, const std::string& path, const std::string& problem) {
  throw DataError(fmt::format("{}: {}: {}", place, path, problem));
}

const std::string& string_of(const nlohmann::json& message, const char* key, std::string_view place,
                             const std::string& path) {
  const auto found = message.find(key);
  if (found == message.end()) fail(place, path, fmt::format("the key \"{}\" is missing", key));
  if (!found->is_string()) {
    fail(place, fmt::format("{}.{}", path, key),
         fmt::format("a JSON {} instead of a string", found->type_name()));
  }
  return found->get_ref<const std::string&>();
}

ChatMessage parse_message(const nlohmann::json& message, std::string_view place, const std::string& path) {
  if (!message.is_object()) {
    fail(place, path,
         fmt::format("a JSON {} instead of an object with role and content", message.type_name()));
  }
  for (const auto& [key, unused] : message.items()) {
    if (key != "role" && key != "content") {
      fail(place, fmt::format("{}.{}", path, key),
           "this key is not supported; a message has role and content only");
    }
  }
  const std::string& role = string_of(message, "role", place, path);
  const std::optional<ChatRole> known = enum_from_name<ChatRole>(role);
  if (!known) {
    fail(place, path + ".role", fmt::format("found \"{}\"; allowed are system, user and assistant", role));
  }
  return {*known, string_of(message, "content", place, path)};
}

// What every dialogue obeys; `last` is the role that must end it.
void check_turns(const Conversation& messages, ChatRole last, std::string_view place) {
  const size_t first = !messages.empty() && messages[0].role == ChatRole::kSystem ? 1 : 0;
  for (size_t i = first; i < messages.size(); ++i) {
    const ChatRole expected = (i - first) % 2 == 0 ? ChatRole::kUser : ChatRole::kAssistant;
    if (messages[i].role == expected) continue;
    fail(
        place, fmt::format("messages[{}].role", i),
        fmt::format("found {} where {} is expected; a system message may come first, then user and assistant "
                    "take turns",
                    enum_to_name(messages[i].role), enum_to_name(expected)));
  }
  if (messages.size() == first || messages.back().role != last) {
    fail(place, "messages",
         fmt::format("the last of the {} messages must be of the role {}", messages.size(),
                     enum_to_name(last)));
  }
}

}  // namespace

Conversation parse_conversation(const DocumentRecord& record) {
  SMOE_CHECK(DataError, record.line > 0,
             "{}: plain text holds no messages; chat data is JSON lines (*.jsonl)", *record.file);
  const nlohmann::json json = parse_document_json(record);
  const std::string place = fmt::format("{}:{}", *record.file, record.line);
  SMOE_CHECK(DataError, json.is_object(), "{}: a JSON {} instead of an object with the key \"messages\"",
             place, json.type_name());
  const auto messages = json.find("messages");
  if (messages == json.end()) {
    std::vector<std::string> keys;
    for (const auto& item : json.items()) keys.push_back(item.key());
    fail(place, "messages", fmt::format("the key is missing (found: {})", fmt::join(keys, ", ")));
  }
  if (!messages->is_array()) {
    fail(place, "messages", fmt::format("a JSON {} instead of a list", messages->type_name()));
  }
  Conversation conversation;
  for (size_t i = 0; i < messages->size(); ++i) {
    conversation.push_back(parse_message((*messages)[i], place, fmt::format("messages[{}]", i)));
  }
  check_turns(conversation, ChatRole::kAssistant, place);
  return conversation;
}

void check_open_dialogue(const Conversation& messages, std::string_view label) {
  check_turns(messages, ChatRole::kUser, label);
}

}  // namespace smoe
