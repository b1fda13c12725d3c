#include "smoe/serve/api_request.h"

#include <algorithm>
#include <functional>
#include <random>

#include "request_fields.h"
#include "smoe/core/json_depth.h"
#include "smoe/infer/chat_dialogue.h"
#include "smoe/infer/generator.h"
#include "smoe/infer/prompts.h"
#include "smoe/serve/api_error.h"

namespace smoe {
namespace {

constexpr int64_t kDefaultCompletionTokens = 16;  // as OpenAI's
constexpr size_t kMostStops = 16;

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// What would change the meaning of an answer, and is not there.
void refuse_unsupported(const RequestFields& fields) {
  using nlohmann::json;
  const std::vector<std::pair<const char*, std::vector<json>>> kAllowed = {
      {"n", {1}},
      {"best_of", {1}},
      {"echo", {false}},
      {"suffix", {""}},
      {"logit_bias", {json::object()}},
      {"presence_penalty", {0, 0.0}},
      {"frequency_penalty", {0, 0.0}},
      {"tools", {json::array()}},
      {"tool_choice", {"none", "auto"}},
      {"functions", {json::array()}},
      {"function_call", {"none", "auto"}},
      {"response_format", {json{{"type", "text"}}}},
      {"modalities", {json::array({"text"})}},
      {"audio", {}},
      {"web_search_options", {}},
      {"top_logprobs", {0}},
      // Of other servers of this kind.
      {"repetition_penalty", {1, 1.0}},
      {"length_penalty", {1, 1.0}},
      {"use_beam_search", {false}},
      {"min_tokens", {0}},
      {"ignore_eos", {false}},
      {"stop_token_ids", {json::array()}},
      {"bad_words", {json::array()}},
      {"prompt_logprobs", {}},
      {"guided_json", {}},
      {"guided_regex", {}},
      {"guided_choice", {}},
      {"guided_grammar", {}},
  };
  for (const auto& [name, allowed] : kAllowed) fields.refuse_unless(name, allowed);
}

void read_sampling(const RequestFields& fields, SamplingConfig& sampling) {
  // Checked one at a time, so that the error can name its field.
  const auto set = [&](const char* name, const std::function<void()>& assign) {
    assign();
    try {
      check_sampling(sampling);
    } catch (const ConfigError& error) {
      throw bad_field(name, error.what());
    }
  };
  set("temperature", [&] { sampling.temperature = fields.number("temperature").value_or(1.0); });
  set("top_p", [&] { sampling.top_p = fields.number("top_p").value_or(1.0); });
  set("min_p", [&] { sampling.min_p = fields.number("min_p").value_or(0.0); });
  // -1 means all for other servers of this kind.
  set("top_k", [&] { sampling.top_k = std::max<int64_t>(0, fields.integer("top_k", -1).value_or(0)); });
  const std::optional<int64_t> seed = fields.integer("seed", std::numeric_limits<int64_t>::min());
  sampling.seed = seed ? static_cast<uint64_t>(*seed) : random_seed();
}

void read_stream(const RequestFields& fields, ApiRequest& request) {
  request.stream = fields.flag("stream");
  if (const nlohmann::json* options = fields.find("stream_options")) {
    const RequestFields nested(*options, "stream_options.");
    request.include_usage = nested.flag("include_usage");
    if (!request.stream) throw bad_field("stream_options", "allowed only with stream: true");
  }
}

// Ids as they are; texts with the leading token of the server's policy.
std::vector<int32_t> read_prompt(const RequestFields& fields, const ServedModel& served) {
  const nlohmann::json* prompt = &fields.require("prompt");
  if (prompt->is_array() && prompt->size() == 1 &&
      (prompt->front().is_string() || prompt->front().is_array())) {
    prompt = &prompt->front();
  }
  if (prompt->is_string()) {
    return encode_prompt(*served.tokenizer, prompt->get_ref<const std::string&>(), served.bos);
  }
  const int64_t vocabulary = served.model.config().vocab_size;
  const auto is_id = [&](const nlohmann::json& id) {
    return id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocabulary);
  };
  if (!prompt->is_array() || !std::ranges::all_of(*prompt, is_id)) {
    throw bad_field("prompt",
                    fmt::format("expected one text, or one list of token ids from 0 to {}; for several "
                                "prompts send several requests",
                                vocabulary - 1));
  }
  return prompt->get<std::vector<int32_t>>();
}

// A text, or parts that are all texts.
std::string read_content(const RequestFields& message, const std::string& path) {
  const nlohmann::json& content = message.require("content");
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw bad_field(path, "expected a text or a list of text parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string part_path = fmt::format("{}[{}].", path, i);
    const RequestFields part(content[i], part_path);
    if (part.text("type") != "text")
      throw bad_field(part_path + "type", "only parts of the type text are supported");
    text += part.text("text").value_or("");
  }
  return text;
}

Conversation read_messages(const RequestFields& fields) {
  const nlohmann::json& messages = fields.require("messages");
  if (!messages.is_array() || messages.empty()) {
    throw bad_field("messages", "expected a list of messages with role and content");
  }
  Conversation conversation;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string path = fmt::format("messages[{}].", i);
    const RequestFields message(messages[i], path);
    std::string role = message.text("role").value_or("");
    if (role == "developer") role = "system";  // OpenAI's newer name
    const std::optional<ChatRole> known = enum_from_name<ChatRole>(role);
    if (!known) {
      throw bad_field(path + "role", fmt::format("found `{}`; allowed are system, user and assistant", role));
    }
    message.refuse_unless("tool_calls", {nlohmann::json::array()});
    message.refuse_unless("function_call", {});
    message.refuse_unless("audio", {});
    conversation.push_back({*known, read_content(message, path + "content")});
  }
  try {
    check_open_dialogue(conversation, "the dialogue");
  } catch (const DataError& error) {
    throw bad_field("messages", error.what());
  }
  return conversation;
}

void read_chat(const RequestFields& fields, const ServedModel& served, GenerationRequest& request) {
  if (!served.renderer) {
    throw ApiError(400, "no_chat_template",
                   "this model has no chat template, so that it cannot answer messages; use /v1/completions, "
                   "or start the server with --template",
                   "messages");
  }
  ChatExample dialogue = served.renderer->open_dialogue(read_messages(fields));
  request.prompt = std::move(dialogue.tokens);
  request.responses = std::move(dialogue.responses);
  request.with_logprobs = fields.flag("logprobs");
  answer_like_training(*served.renderer, request);
}

void read_completion(const RequestFields& fields, const ServedModel& served, GenerationRequest& request) {
  request.prompt = read_prompt(fields, served);
  if (request.prompt.empty()) {
    throw bad_field("prompt", "it has no tokens, so that there is nothing to continue");
  }
  request.continues_text = true;
  // Alternatives to the chosen token are not kept, so that 0 is the one number that can be served.
  if (const std::optional<int64_t> logprobs = fields.integer("logprobs", 0)) {
    if (*logprobs > 0) throw bad_field("logprobs", fmt::format("found {}; only 0 is supported", *logprobs));
    request.with_logprobs = true;
  }
}

void read_routing(const RequestFields& fields, const ServedModel& served, GenerationRequest& request) {
  request.segment_length = fields.integer("segment_length", 1).value_or(served.segment_length);
  if (const std::optional<std::string> routing = fields.text("routing")) {
    try {
      request.routing = parse_routing_mode(*routing);
    } catch (const ConfigError& error) {
      throw bad_field("routing", error.what());
    }
  }
}

void read_lengths(const RequestFields& fields, ApiKind kind, int64_t context_limit, int64_t max_output_tokens,
                  GenerationRequest& request) {
  const int64_t prompt = std::ssize(request.prompt);
  const char* name = fields.find("max_completion_tokens") != nullptr ? "max_completion_tokens" : "max_tokens";
  const std::optional<int64_t> asked = fields.integer(name, 1);
  request.context_limit = context_limit;
  const std::string prompt_field = kind == ApiKind::kChat ? "messages" : "prompt";
  if (prompt >= context_limit) {
    throw ApiError(400, "context_length_exceeded",
                   fmt::format("{}: {} tokens; prompt and answer together may have {}", prompt_field, prompt,
                               context_limit),
                   prompt_field);
  }
  if (asked && *asked > max_output_tokens) {
    throw bad_field(name, fmt::format("found {}; this server gives {} at most", *asked, max_output_tokens));
  }
  if (asked && *asked > context_limit - prompt) {
    throw ApiError(400, "context_length_exceeded",
                   fmt::format("{}: {} tokens after a prompt of {}; together they may be {}", name, *asked,
                               prompt, context_limit),
                   name);
  }
  const int64_t by_default = kind == ApiKind::kChat ? max_output_tokens : kDefaultCompletionTokens;
  request.max_new_tokens = asked.value_or(std::min({by_default, max_output_tokens, context_limit - prompt}));
}

}  // namespace

nlohmann::json parse_request_body(const std::string& body) {
  if (is_too_deep_json(body)) {
    throw ApiError(400, "invalid_json",
                   fmt::format("the body nests more than {} levels deep", kMaxJsonDepth));
  }
  try {
    return nlohmann::json::parse(body);
  } catch (const nlohmann::json::parse_error& error) {
    throw ApiError(400, "invalid_json",
                   fmt::format("the body is not JSON: {} (byte {})", error.what(), error.byte));
  } catch (const nlohmann::json::exception& error) {
    // A number too large for any type has no position.
    throw ApiError(400, "invalid_json", fmt::format("the body is not usable JSON: {}", error.what()));
  }
}

ApiRequest parse_api_request(ApiKind kind, const nlohmann::json& body, const ServedModel& served,
                             const ModelCatalog& catalog, int64_t max_output_tokens) {
  const RequestFields fields(body);
  ApiRequest request;
  request.kind = kind;
  const std::optional<std::string> asked_model = fields.text("model");
  const ModelCatalog::Entry& entry = asked_model ? catalog.find(*asked_model) : catalog.entries().front();
  request.model_id = entry.id;
  refuse_unsupported(fields);
  read_stream(fields, request);
  GenerationRequest& generation = request.generation;
  generation.budget = entry.budget;
  generation.stop_ids = default_stop_ids(*served.tokenizer);
  generation.stops = fields.texts("stop", kMostStops);
  read_sampling(fields, generation.sampling);
  if (kind == ApiKind::kChat) {
    read_chat(fields, served, generation);
  } else {
    read_completion(fields, served, generation);
  }
  read_routing(fields, served, generation);
  read_lengths(fields, kind, served.context_limit, max_output_tokens, generation);
  return request;
}

}  // namespace smoe
