#include "api_response.h"

#include <ctime>
#include <random>

namespace smoe {
namespace {

// Ids only have to differ between answers.
std::string random_id(const char* prefix) {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  return fmt::format("{}-{:016x}{:016x}", prefix, generator(), generator());
}

// OpenAI's words: an end token is a stop too.
std::string reason_of(FinishReason finish) { return finish == FinishReason::kLength ? "length" : "stop"; }

}  // namespace

std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string sse_data(const nlohmann::json& value) { return "data: " + json_text(value) + "\n\n"; }

AnswerWriter::AnswerWriter(const ApiRequest& request, const Tokenizer& tokenizer)
    : kind_(request.kind),
      include_usage_(request.include_usage),
      with_logprobs_(request.generation.with_logprobs),
      model_id_(request.model_id),
      tokenizer_(tokenizer),
      id_(random_id(kind_ == ApiKind::kChat ? "chatcmpl" : "cmpl")),
      created_(static_cast<int64_t>(std::time(nullptr))),
      prompt_tokens_(std::ssize(request.generation.prompt)) {
  if (request.generation.continues_text) previous_token_ = request.generation.prompt.back();
}

void AnswerWriter::add(const ServeEvent& event) {
  text_ += event.text;
  if (event.token) ++num_tokens_;
  if (event.token && with_logprobs_) token_entries_.push_back(token_entry(event));
  if (event.token) previous_token_ = event.token;
  if (event.finish) finish_reason_ = reason_of(*event.finish);
}

// What the token adds to the text before it: decoded by itself, a SentencePiece token loses its space.
std::string AnswerWriter::token_text(int32_t token) const {
  if (previous_token_) {
    const std::string before = tokenizer_.decode({*previous_token_}, true);
    const std::string both = tokenizer_.decode({*previous_token_, token}, true);
    // Bytes of one character decode to something else together.
    if (both.starts_with(before)) return both.substr(before.size());
  }
  return tokenizer_.decode({token}, true);
}

nlohmann::json AnswerWriter::token_entry(const ServeEvent& event) const {
  const std::string text = token_text(*event.token);
  nlohmann::json bytes = nlohmann::json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", text},
          {"logprob", event.logprob.value_or(0.0)},
          {"bytes", std::move(bytes)},
          {"top_logprobs", nlohmann::json::array()}};
}

nlohmann::json AnswerWriter::logprobs(const nlohmann::json& entries) const {
  if (!with_logprobs_) return nullptr;
  if (kind_ == ApiKind::kChat) return {{"content", entries}, {"refusal", nullptr}};
  nlohmann::json tokens = nlohmann::json::array();
  nlohmann::json values = nlohmann::json::array();
  for (const nlohmann::json& entry : entries) {
    tokens.push_back(entry["token"]);
    values.push_back(entry["logprob"]);
  }
  return {{"tokens", std::move(tokens)}, {"token_logprobs", std::move(values)}, {"top_logprobs", nullptr}};
}

nlohmann::json AnswerWriter::usage() const {
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", num_tokens_},
          {"total_tokens", prompt_tokens_ + num_tokens_}};
}

nlohmann::json AnswerWriter::frame(bool is_chunk) const {
  std::string object = "text_completion";
  if (kind_ == ApiKind::kChat) object = is_chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_id_}};
}

nlohmann::json AnswerWriter::whole() const {
  nlohmann::json choice = {
      {"index", 0}, {"finish_reason", finish_reason_}, {"logprobs", logprobs(token_entries_)}};
  if (kind_ == ApiKind::kChat) {
    choice["message"] = {{"role", "assistant"}, {"content", text_}, {"refusal", nullptr}};
  } else {
    choice["text"] = text_;
  }
  nlohmann::json answer = frame(false);
  answer["choices"] = nlohmann::json::array({std::move(choice)});
  answer["usage"] = usage();
  return answer;
}

std::string AnswerWriter::data_line(nlohmann::json choice) const {
  choice["index"] = 0;
  if (!choice.contains("finish_reason")) choice["finish_reason"] = nullptr;
  if (!choice.contains("logprobs")) choice["logprobs"] = nullptr;
  nlohmann::json value = frame(true);
  value["choices"] = nlohmann::json::array({std::move(choice)});
  if (include_usage_) value["usage"] = nullptr;
  return sse_data(value);
}

std::string AnswerWriter::first_chunk() const {
  if (kind_ != ApiKind::kChat) return "";
  return data_line({{"delta", {{"role", "assistant"}, {"content", ""}}}});
}

std::string AnswerWriter::chunk(const ServeEvent& event) const {
  const bool is_chat = kind_ == ApiKind::kChat;
  std::string lines;
  const bool has_logprob = with_logprobs_ && event.token;
  if (!event.text.empty() || has_logprob) {
    nlohmann::json choice;
    if (is_chat) {
      choice["delta"] = {{"content", event.text}};
    } else {
      choice["text"] = event.text;
    }
    if (has_logprob) choice["logprobs"] = logprobs(nlohmann::json::array({token_entries_.back()}));
    lines += data_line(std::move(choice));
  }
  if (event.finish) {
    nlohmann::json choice = {{"finish_reason", reason_of(*event.finish)}};
    if (is_chat) {
      choice["delta"] = nlohmann::json::object();
    } else {
      choice["text"] = "";
    }
    lines += data_line(std::move(choice));
  }
  return lines;
}

std::string AnswerWriter::usage_chunk() const {
  if (!include_usage_) return "";
  nlohmann::json value = frame(true);
  value["choices"] = nlohmann::json::array();
  value["usage"] = usage();
  return sse_data(value);
}

}  // namespace smoe
