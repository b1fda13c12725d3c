#include "eval/judge_prompts.h"

#include "smoe/core/error.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

constexpr std::string_view kBegin = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

}  // namespace

std::string fill_placeholders(std::string_view text,
                              const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string filled;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    bool replaced = false;
    for (const auto& [name, value] : values) {
      if (rest.front() != '{' || !rest.substr(1).starts_with(name) ||
          rest.substr(1 + name.size(), 1) != "}") {
        continue;
      }
      filled += value;
      at += name.size() + 2;
      replaced = true;
      break;
    }
    if (!replaced) filled += text[at++];
  }
  return filled;
}

std::vector<JudgeMessage> parse_chat_template(std::string_view text, const std::string& where) {
  std::vector<JudgeMessage> messages;
  while (true) {
    const size_t begin = text.find(kBegin);
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin + kBegin.size());
    const size_t line_end = text.find('\n');
    const size_t end = text.find(kEnd);
    SMOE_CHECK(DataError, end != std::string_view::npos && line_end < end,
               "{}: `prompt_template`: message {} has no role in its first line or no {}", where,
               messages.size() + 1, kEnd);
    const std::string role(strip(text.substr(0, line_end)));
    SMOE_CHECK(DataError, role == "system" || role == "user" || role == "assistant",
               "{}: `prompt_template`: role '{}'; allowed are system, user and assistant", where, role);
    messages.push_back({role, std::string(strip(text.substr(line_end, end - line_end)))});
    text.remove_prefix(end + kEnd.size());
  }
  SMOE_CHECK(DataError, !messages.empty(), "{}: `prompt_template` holds no {}ROLE ... {}", where, kBegin,
             kEnd);
  return messages;
}

double judge_number(const Row& settings, const char* key) {
  const auto found = settings.value().find(key);
  SMOE_CHECK(DataError, found != settings.value().end() && found->is_number(), "{}: no number `{}`",
             settings.where(), key);
  return found->get<double>();
}

Row read_judge_settings(const std::filesystem::path& file) {
  const std::vector<Row> rows = read_rows(file, 0);
  SMOE_CHECK(DataError, rows.size() == 1, "{}: {} rows; expected one object with the judge's prompt",
             file.string(), rows.size());
  return rows[0];
}

}  // namespace smoe
