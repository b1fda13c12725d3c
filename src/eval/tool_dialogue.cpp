#include "smoe/eval/tool_dialogue.h"

#include "smoe/core/error.h"
#include "smoe/eval/python_text.h"

namespace smoe {
namespace {

void add_paragraph(const std::string& paragraph, const char* separator, std::string& text) {
  if (!text.empty()) text += separator;
  text += paragraph;
}

// The functions, one JSON object a line; empty if there are none.
std::string tools_text(const Row& row) {
  const auto tools = row.value().find("tools");
  if (tools == row.value().end() || tools->is_null()) return "";
  SMOE_CHECK(DataError, tools->is_array(), "{}: `tools` is {}; expected a list of functions", row.where(),
             tools->type_name());
  std::string text;
  for (const nlohmann::json& tool : *tools) add_paragraph(tool.dump(), "\n", text);
  return text;
}

struct RoleAndText {
  ChatRole role = ChatRole::kUser;
  std::string text;
};

RoleAndText read_message(const ToolCallConfig& config, const nlohmann::json& message,
                         const std::string& where) {
  SMOE_CHECK(DataError, message.is_object() && message.contains("role") && message["role"].is_string(),
             "{}: expected an object with a role", where);
  const std::string role = message["role"];
  std::string text = tool_message_text(message, where);
  if (role == "tool" || role == "function") {
    return {ChatRole::kUser, fmt::format("{}\n{}\n{}", config.result_open, text, config.result_close)};
  }
  const std::optional<ChatRole> known = enum_from_name<ChatRole>(role);
  SMOE_CHECK(DataError, known.has_value(),
             "{}: unknown role `{}`; allowed are system, user, assistant, tool and function", where, role);
  for (const ToolCall& call : parse_tool_calls(message, where)) {
    text += fmt::format("{}{}\n{}\n{}", text.empty() ? "" : "\n", config.open, tool_call_text(call),
                        config.close);
  }
  return {*known, std::move(text)};
}

}  // namespace

Conversation tool_dialogue(const ToolCallConfig& config, const Row& row) {
  const auto messages = row.value().find("messages");
  SMOE_CHECK(DataError, messages != row.value().end() && messages->is_array() && !messages->empty(),
             "{}: no list `messages`, the dialogue to be continued", row.where());
  std::string system;
  Conversation dialogue;
  for (size_t i = 0; i < messages->size(); ++i) {
    RoleAndText message =
        read_message(config, (*messages)[i], fmt::format("{}: messages[{}]", row.where(), i));
    if (message.role == ChatRole::kSystem) {
      add_paragraph(message.text, "\n\n", system);
    } else if (!dialogue.empty() && dialogue.back().role == message.role) {
      add_paragraph(message.text, "\n", dialogue.back().content);
    } else {
      dialogue.push_back({message.role, std::move(message.text)});
    }
  }
  if (const std::string tools = tools_text(row); !tools.empty()) {
    add_paragraph(replace_each(config.instructions, "{tools}", tools), "\n\n", system);
  }
  if (!system.empty()) dialogue.insert(dialogue.begin(), {ChatRole::kSystem, system});
  check_open_dialogue(dialogue, row.where());
  return dialogue;
}

std::string plain_dialogue(const Conversation& dialogue) {
  std::string text;
  for (const ChatMessage& message : dialogue) {
    const char* speaker = message.role == ChatRole::kUser        ? "User: "
                          : message.role == ChatRole::kAssistant ? "Assistant: "
                                                                 : "";
    text += speaker + message.content + "\n\n";
  }
  return text + "Assistant:";
}

}  // namespace smoe
