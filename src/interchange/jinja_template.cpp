#include "smoe/interchange/jinja_template.h"

#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr std::string_view kCommentBegin = "{#- smoe chat template\n";
constexpr std::string_view kCommentEnd = "-#}";

// A string literal of Jinja, which has the escapes of Python.
std::string literal(const std::string& text) {
  std::string result = "'";
  for (const char character : text) {
    switch (character) {
      case '\'':
        result += "\\'";
        break;
      case '\\':
        result += "\\\\";
        break;
      case '\n':
        result += "\\n";
        break;
      case '\r':
        result += "\\r";
        break;
      case '\t':
        result += "\\t";
        break;
      default:
        result += character;
    }
  }
  return result + "'";
}

// {{ a + b }} of the parts that are not empty.
std::string output(const std::vector<std::string>& parts) {
  std::string sum;
  for (const std::string& part : parts) {
    if (part != "''") sum += (sum.empty() ? "" : " + ") + part;
  }
  return sum.empty() ? "" : "{{ " + sum + " }}";
}

std::string leading_token(BosPolicy policy) {
  switch (policy) {
    case BosPolicy::kAlways:
      return "{{ bos_token }}";
    case BosPolicy::kAuto:
      return "{% if bos_token %}{{ bos_token }}{% endif %}";
    case BosPolicy::kEos:
      return "{{ eos_token }}";
    case BosPolicy::kNever:
      return "";
  }
  SMOE_ASSERT(false);
  return {};
}

std::string body(const ChatTemplate& chat) {
  const std::string content = chat.trim_content ? "(message['content'] | trim)" : "message['content']";
  std::string text = leading_token(chat.bos);
  text += "{% for message in messages %}";
  text += "{% if message['role'] == 'system' %}";
  text += output({literal(chat.system.prefix), content, literal(chat.system.suffix)});
  text += "{% elif message['role'] == 'user' %}";
  text += output({literal(chat.user.prefix), content, literal(chat.user.suffix)});
  text += "{% elif message['role'] == 'assistant' %}";
  text += output({literal(chat.assistant.prefix), content, literal(chat.assistant.end),
                  chat.assistant.end_with_eos ? "eos_token" : "''"});
  if (!chat.assistant.suffix.empty()) {
    text += "{% if not loop.last %}" + output({literal(chat.assistant.suffix)}) + "{% endif %}";
  }
  text +=
      "{% else %}{{ raise_exception('the roles are system, user and assistant') }}{% endif %}{% endfor %}";
  text += "{% if add_generation_prompt %}" + output({literal(chat.assistant.prefix)}) + "{% endif %}";
  return text;
}

}  // namespace

std::string to_jinja(const ChatTemplate& chat) {
  const std::string yaml = dump_config(chat);
  // A template that spells the end of a comment is written without one.
  const bool fits = yaml.find("#}") == std::string::npos;
  return (fits ? std::string(kCommentBegin) + yaml + std::string(kCommentEnd) : "") + body(chat);
}

std::optional<ChatTemplate> from_jinja(const std::string& jinja) {
  const size_t end = jinja.find(kCommentEnd);
  if (!jinja.starts_with(kCommentBegin) || end == std::string::npos) return std::nullopt;
  const std::string yaml = jinja.substr(kCommentBegin.size(), end - kCommentBegin.size());
  try {
    const auto chat = config_from_yaml<ChatTemplate>(yaml, "the comment of the Jinja chat template");
    // Someone may have edited the Jinja below the comment.
    return to_jinja(chat) == jinja ? std::optional(chat) : std::nullopt;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace smoe
