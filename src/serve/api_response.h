// The JSON of answers: whole ones and the chunks of streamed ones.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "smoe/data/tokenizer.h"
#include "smoe/serve/api_request.h"
#include "smoe/serve/scheduler.h"

namespace smoe {

// One answer. Collects what whole answers and token counts need while events pass through.
class AnswerWriter {
 public:
  // `tokenizer` must outlive the writer.
  AnswerWriter(const ApiRequest& request, const Tokenizer& tokenizer);

  void add(const ServeEvent& event);
  // The complete answer, after the last event.
  nlohmann::json whole() const;

  // What a stream sends as one `data:` line each, all of them together for the event that was added last.
  std::string first_chunk() const;  // a chat says its role first; else empty
  std::string chunk(const ServeEvent& event) const;
  std::string usage_chunk() const;  // empty unless asked for

  int64_t num_tokens() const { return num_tokens_; }

 private:
  nlohmann::json frame(bool is_chunk) const;
  nlohmann::json usage() const;
  nlohmann::json logprobs(const nlohmann::json& tokens) const;
  nlohmann::json token_entry(const ServeEvent& event) const;
  std::string token_text(int32_t token) const;
  std::string data_line(nlohmann::json choice) const;

  ApiKind kind_;
  bool include_usage_;
  bool with_logprobs_;
  std::string model_id_;
  const Tokenizer& tokenizer_;
  std::string id_;
  int64_t created_;
  int64_t prompt_tokens_;
  int64_t num_tokens_ = 0;
  std::string text_;
  std::optional<int32_t> previous_token_;  // before the next one: how a text begins depends on it
  nlohmann::json token_entries_ = nlohmann::json::array();
  std::string finish_reason_;
};

// One event of a stream.
std::string sse_data(const nlohmann::json& value);
inline constexpr const char* kSseDone = "data: [DONE]\n\n";
// JSON text; what is not UTF-8 is replaced.
std::string json_text(const nlohmann::json& value);

}  // namespace smoe
