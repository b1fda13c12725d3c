#include "smoe/eval/tool_calls.h"

#include <algorithm>
#include <set>

#include "smoe/core/error.h"
#include "smoe/eval/flexible_dates.h"
#include "smoe/eval/python_regex.h"
#include "smoe/eval/python_text.h"
#include "smoe/eval/text_filters.h"
#include "smoe/eval/tool_arguments.h"

namespace smoe {
namespace {

// A call in JSON: {"name": ..., "arguments": {...}}; the arguments may be JSON in a text.
ToolCall call_from_json(const nlohmann::json& json) {
  ToolCall unreadable;
  unreadable.is_readable = false;
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return unreadable;
  unreadable.name = json["name"];
  const auto found = json.contains("arguments") ? json.find("arguments") : json.find("parameters");
  if (found == json.end()) return unreadable;
  nlohmann::json arguments = *found;
  if (arguments.is_string()) {
    arguments = nlohmann::json::parse(arguments.get_ref<const std::string&>(), nullptr, false);
  }
  if (arguments.is_discarded()) return unreadable;
  return {json["name"], std::move(arguments), true};
}

void add_calls(std::string_view text, std::vector<ToolCall>& calls) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array()) {
    calls.push_back(call_from_json(json));
    return;
  }
  for (const nlohmann::json& call : json) calls.push_back(call_from_json(call));
}

std::string_view without_fence(std::string_view text) {
  text = strip(text);
  if (!text.starts_with("```") || !text.ends_with("```") || text.size() < 6) return text;
  text = text.substr(3, text.size() - 6);
  const size_t line = text.find('\n');
  return line == std::string_view::npos ? text : text.substr(line + 1);
}

// White space at the left goes, but no line end: so does the published tool.
std::string trimmed_content(std::string_view text) {
  const size_t line = std::min(text.find('\n'), text.size());
  return std::string(strip_left(text.substr(0, line))) + std::string(text.substr(line));
}

const nlohmann::json* find_rules(const nlohmann::json& rule) {
  const auto found = rule.find("arguments");
  return found == rule.end() ? nullptr : &*found;
}

}  // namespace

ToolMessage read_tool_answer(const ToolCallConfig& config, std::string_view answer) {
  ToolMessage message;
  const size_t first = answer.find(config.open);
  if (first == std::string_view::npos) {
    std::vector<ToolCall> calls;
    add_calls(without_fence(answer), calls);
    const bool is_call = !calls.empty() && std::ranges::all_of(calls, &ToolCall::is_readable);
    if (is_call) return {"", std::move(calls)};
    return {trimmed_content(answer), {}};
  }
  message.content = trimmed_content(answer.substr(0, first));
  for (size_t begin = first; begin != std::string_view::npos;) {
    begin += config.open.size();
    const size_t next = answer.find(config.open, begin);
    const size_t end = std::min({answer.find(config.close, begin), next, answer.size()});
    add_calls(answer.substr(begin, end - begin), message.calls);
    begin = next;
  }
  return message;
}

std::vector<ToolCall> parse_tool_calls(const nlohmann::json& message, const std::string& where) {
  std::vector<ToolCall> calls;
  const auto found = message.find("tool_calls");
  if (found == message.end() || found->is_null()) return calls;
  SMOE_CHECK(DataError, found->is_array(), "{}: `tool_calls` is {}; expected a list of calls", where,
             found->type_name());
  for (const nlohmann::json& call : *found) {
    SMOE_CHECK(DataError, call.is_object() && call.contains("function"),
               "{}: entry {} of `tool_calls` has no `function`", where, calls.size());
    calls.push_back(call_from_json(call["function"]));
    SMOE_CHECK(DataError, calls.back().is_readable,
               "{}: entry {} of `tool_calls` has no `name`, or no `arguments` that are JSON", where,
               calls.size() - 1);
  }
  return calls;
}

std::string tool_message_text(const nlohmann::json& message, const std::string& where) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return "";
  if (content->is_string()) return *content;
  if (content->is_object()) return content->dump();
  SMOE_CHECK(DataError, content->is_array(), "{}: `content` is {}; expected a text", where,
             content->type_name());
  std::string text;
  for (const nlohmann::json& part : *content) {
    SMOE_CHECK(DataError, part.is_object() && part.contains("text") && part["text"].is_string(),
               "{}: a part of `content` is no text; only texts can be put into a prompt", where);
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

std::string tool_call_text(const ToolCall& call) {
  return nlohmann::ordered_json{{"name", call.name}, {"arguments", call.arguments}}.dump();
}

ToolTarget::ToolTarget(const Row& row) {
  const nlohmann::json& json = row.value();
  const auto target = json.find("target_message");
  SMOE_CHECK(DataError, target != json.end() && target->is_object(),
             "{}: no object `target_message`, the right answer", row.where());
  const std::string where = row.where() + ": target_message";
  message_ = {tool_message_text(*target, where), parse_tool_calls(*target, where)};
  SMOE_CHECK(DataError, !message_.content.empty() || !message_.calls.empty(),
             "{} has neither a text nor calls, so that no answer could be right", where);
  for (const ToolCall& call : message_.calls) {
    SMOE_CHECK(DataError, call.arguments.is_object(), "{}: the arguments of `{}` are {}; expected an object",
               where, call.name, call.arguments.type_name());
  }
  rules_.assign(message_.calls.size(), nlohmann::json::object());
  const auto rules = json.find("target_message_match_rules");
  if (rules == json.end() || rules->is_null()) return;
  SMOE_CHECK(DataError, rules->is_array() && rules->size() == message_.calls.size(),
             "{}: `target_message_match_rules` must be a list with one entry for each of the {} calls",
             row.where(), message_.calls.size());
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (!(*rules)[i].is_object()) continue;
    const nlohmann::json* arguments = find_rules((*rules)[i]);
    if (arguments == nullptr || arguments->is_null()) continue;
    check_argument_rules(*arguments, message_.calls[i].arguments,
                         fmt::format("{}: target_message_match_rules[{}]", row.where(), i));
    rules_[i] = *arguments;
  }
}

bool ToolTarget::matches(const ToolCall& call, size_t expected) const {
  const ToolCall& target = message_.calls[expected];
  if (!call.is_readable || call.name != target.name || !call.arguments.is_object()) return false;
  const nlohmann::json nothing;
  const auto value = [&](const nlohmann::json& arguments, const std::string& name) -> const nlohmann::json& {
    const auto found = arguments.find(name);
    return found == arguments.end() ? nothing : *found;
  };
  std::set<std::string> names;
  for (const auto& [name, unused] : call.arguments.items()) names.insert(name);
  for (const auto& [name, unused] : target.arguments.items()) names.insert(name);
  for (const auto& [name, rule] : rules_[expected].items()) {
    if (!call.arguments.contains(name)) return false;
    if (!follows_rule(rule, call.arguments[name], value(target.arguments, name))) return false;
    names.erase(name);
  }
  return std::ranges::all_of(names, [&](const std::string& name) {
    return are_standard_equal(value(call.arguments, name), value(target.arguments, name));
  });
}

// Every call takes the first expected one that it matches, and each is taken once.
bool ToolTarget::are_the_same_calls(const std::vector<ToolCall>& calls) const {
  std::vector<size_t> open(message_.calls.size());
  for (size_t i = 0; i < open.size(); ++i) open[i] = i;
  for (const ToolCall& call : calls) {
    const auto found = std::ranges::find_if(open, [&](size_t expected) { return matches(call, expected); });
    if (found == open.end()) return false;
    open.erase(found);
  }
  return open.empty();
}

ToolVerdict ToolTarget::compare(const ToolMessage& answer) const {
  ToolVerdict verdict;
  verdict.makes_call = !answer.calls.empty();
  verdict.expected = std::ssize(message_.calls);
  if (!message_.content.empty() && message_.content == answer.content) {
    verdict.is_right = true;
  } else if (!message_.calls.empty() && message_.calls.size() == answer.calls.size()) {
    verdict.is_right = are_the_same_calls(answer.calls);
  }
  std::vector<const ToolCall*> strict, lenient, bag_of_words;
  for (const ToolCall& call : message_.calls) strict.push_back(&call);
  bag_of_words = lenient = strict;
  for (const ToolCall& call : answer.calls) {
    if (!call.is_readable) continue;
    const auto is_named = [&](const ToolCall* target) { return target->name == call.name; };
    verdict.named += std::ranges::any_of(strict, is_named);
    const auto take = [&](std::vector<const ToolCall*>& open, ArgumentComparison comparison) {
      const auto found = std::ranges::find_if(open, [&](const ToolCall* target) {
        return is_named(target) && are_equal_arguments(call.arguments, target->arguments, comparison);
      });
      if (found == open.end()) return 0;
      open.erase(found);
      return 1;
    };
    verdict.strict += take(strict, ArgumentComparison::kStrict);
    verdict.lenient += take(lenient, ArgumentComparison::kLenient);
    verdict.bag_of_words += take(bag_of_words, ArgumentComparison::kBagOfWords);
  }
  return verdict;
}

}  // namespace smoe
