#include "smoe/data/chat_renderer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "smoe/core/error.h"

namespace smoe {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

void append(ChatExample& example, const std::vector<int32_t>& ids, bool is_target) {
  example.tokens.insert(example.tokens.end(), ids.begin(), ids.end());
  example.is_target.insert(example.is_target.end(), ids.size(), is_target ? 1 : 0);
}

int64_t size_of(const ChatExample& example) { return static_cast<int64_t>(example.tokens.size()); }

}  // namespace

bool truncate_left(ChatExample& example, int64_t max_pairs) {
  SMOE_ASSERT(max_pairs > example.num_leading);
  const int64_t surplus = example.num_pairs() - max_pairs;
  if (surplus <= 0) return !example.responses.empty();
  const int64_t cut_end = example.num_leading + surplus;
  std::vector<ResponseSpan> responses;
  std::vector<int64_t> response_bytes;
  for (size_t i = 0; i < example.responses.size(); ++i) {
    const ResponseSpan& response = example.responses[i];
    // Its first token needs a token to be predicted from.
    if (response.begin < cut_end || response.begin == surplus) {
      std::fill(example.is_target.begin() + response.begin, example.is_target.begin() + response.end, 0);
      continue;
    }
    responses.push_back({response.begin - surplus, response.end - surplus});
    response_bytes.push_back(example.response_bytes[i]);
  }
  example.responses = std::move(responses);
  example.response_bytes = std::move(response_bytes);
  example.tokens.erase(example.tokens.begin() + example.num_leading, example.tokens.begin() + cut_end);
  example.is_target.erase(example.is_target.begin() + example.num_leading,
                          example.is_target.begin() + cut_end);
  return !example.responses.empty();
}

ChatRenderer::ChatRenderer(ChatTemplate chat, const Tokenizer& tokenizer)
    : chat_(std::move(chat)), tokenizer_(tokenizer) {
  check_special_tokens();
  SMOE_CHECK(
      ConfigError, chat_.bos != BosPolicy::kAlways || tokenizer_.bos_id().has_value(),
      "chat template {}: bos is `always`, but {} has no BOS token; use another template, or a tokenizer "
      "with BOS",
      chat_.name, tokenizer_.path().string());
  leading_ = leading_token(tokenizer_, chat_.bos);
  const auto encode = [&](const std::string& piece) { return tokenizer_.encode_with_special_tokens(piece); };
  system_prefix_ = encode(chat_.system.prefix);
  system_suffix_ = encode(chat_.system.suffix);
  user_prefix_ = encode(chat_.user.prefix);
  user_suffix_ = encode(chat_.user.suffix);
  answer_prefix_ = encode(chat_.assistant.prefix);
  answer_end_ = encode(chat_.assistant.end);
  answer_suffix_ = encode(chat_.assistant.suffix);
  if (chat_.assistant.end_with_eos) {
    const std::optional<int32_t> eos = tokenizer_.eos_id();
    SMOE_CHECK(ConfigError, eos.has_value(),
               "chat template {}: assistant.end_with_eos is true, but {} has no EOS token", chat_.name,
               tokenizer_.path().string());
    answer_end_.push_back(*eos);
    stop_.tokens = {*eos};
    stop_.ending = chat_.assistant.end;
  } else if (answer_end_.size() == 1) {
    stop_.tokens = {answer_end_.front()};
  } else {
    stop_.texts = {chat_.assistant.end};
  }
}

void ChatRenderer::check_special_tokens() const {
  for (const std::string& spelling : chat_.special_tokens) {
    const Ids ids = tokenizer_.encode_with_special_tokens(spelling);
    const Ids plain = tokenizer_.encode(spelling);
    const bool is_single = ids.size() == 1 && tokenizer_.token_id(spelling) == ids.front();
    SMOE_CHECK(
        ConfigError, is_single || chat_.allow_plain_text_pieces,
        "chat template {}: {} has no token `{}` ({} tokens would spell it out). Use a tokenizer that has it "
        "(smoe-data train-tokenizer --special-token), another template such as plain, or set "
        "allow_plain_text_pieces: true in the template",
        chat_.name, tokenizer_.path().string(), spelling, ids.size());
    // A message could otherwise end its own turn and speak for another role.
    SMOE_CHECK(
        ConfigError, !is_single || std::ranges::find(plain, ids.front()) == plain.end(),
        "chat template {}: {} gives the token `{}` for plain text too, so that messages could imitate the "
        "template; mark the token as special in the tokenizer",
        chat_.name, tokenizer_.path().string(), spelling);
  }
}

ChatRenderer::Ids ChatRenderer::content_ids(const std::string& content) const {
  return tokenizer_.encode(chat_.trim_content ? trimmed(content) : std::string_view(content));
}

void ChatRenderer::append_message(const ChatMessage& message, ChatExample& example) const {
  const bool is_system = message.role == ChatRole::kSystem;
  append(example, is_system ? system_prefix_ : user_prefix_, false);
  append(example, content_ids(message.content), false);
  append(example, is_system ? system_suffix_ : user_suffix_, false);
}

void ChatRenderer::append_answer(const ChatMessage& message, bool is_last, ChatExample& example) const {
  append(example, answer_prefix_, false);
  const int64_t begin = size_of(example);
  const int64_t prompt_begin = example.responses.empty() ? 0 : example.responses.back().end;
  SMOE_CHECK(
      DataError, begin > prompt_begin,
      "chat template {}: answer {} has no token before it that it could follow; give assistant.prefix a "
      "text",
      chat_.name, example.responses.size());
  append(example, content_ids(message.content), true);
  append(example, answer_end_, true);
  example.responses.push_back({begin, size_of(example)});
  example.response_bytes.push_back(static_cast<int64_t>(message.content.size()));
  if (!is_last) append(example, answer_suffix_, false);
}

ChatExample ChatRenderer::render(const Conversation& messages) const {
  ChatExample example;
  if (leading_) append(example, {*leading_}, false);
  example.num_leading = size_of(example);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == ChatRole::kAssistant) {
      append_answer(messages[i], i + 1 == messages.size(), example);
    } else {
      append_message(messages[i], example);
    }
  }
  return example;
}

ChatExample ChatRenderer::open_dialogue(const Conversation& messages) const {
  check_open_dialogue(messages, "dialogue");
  ChatExample example = render(messages);
  append(example, answer_prefix_, false);
  return example;
}

std::vector<int32_t> ChatRenderer::prompt(const Conversation& messages) const {
  return open_dialogue(messages).tokens;
}

}  // namespace smoe
