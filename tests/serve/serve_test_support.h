// A server on a loopback port in this process, a client, and models small enough to answer at once.
#pragma once

#include <httplib.h>

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "infer/infer_test_support.h"
#include "smoe/infer/prompts.h"
#include "smoe/serve/server.h"

namespace smoe::testing {

using nlohmann::json;

// The random Stepped MoE of the tests, with " w0" ... " w60" as tokens.
inline ServedModel stepped_served(int64_t context_limit = 64) {
  const ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  return {.name = "tiny",
          .model = tiny_model(config),
          .tokenizer = std::make_unique<PieceTokenizer>(word_tokenizer()),
          .renderer = nullptr,
          .experts = nullptr,
          .bos = BosPolicy::kNever,
          .default_budget = 2,
          .segment_length = config.routing.segment_length,
          .context_limit = context_limit,
          .session = {}};
}

struct Reply {
  int status = 0;
  json body;
  std::string text;
  httplib::Headers headers;
};

class RunningServer {
 public:
  explicit RunningServer(ServedModel served, ServerOptions options = {})
      : server_(std::move(served), with_free_port(std::move(options))) {
    server_.start();
  }

  httplib::Client client() const {
    httplib::Client made("127.0.0.1", server_.port());
    made.set_read_timeout(60);
    return made;
  }
  Reply post_text(const std::string& path, const std::string& body) const {
    return reply_of(client().Post(path, body, "application/json"));
  }
  Reply post(const std::string& path, const json& body) const { return post_text(path, body.dump()); }
  Reply get(const std::string& path) const { return reply_of(client().Get(path)); }
  // A sample of /metrics; -1 if it is not there.
  double metric(const std::string& name) const {
    const std::string text = get("/metrics").text;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }
  Server& server() { return server_; }

 private:
  static ServerOptions with_free_port(ServerOptions options) {
    options.port = 0;
    return options;
  }
  static Reply reply_of(const httplib::Result& result) {
    if (!result) return {-1, {}, httplib::to_string(result.error()), {}};
    return {result->status, json::parse(result->body, nullptr, false), result->body, result->headers};
  }

  Server server_;
};

// The values of a stream's `data:` lines; the last one must be [DONE] and is left out.
inline std::vector<json> stream_values(const std::string& text) {
  std::vector<json> values;
  size_t begin = 0;
  bool is_done = false;
  while (begin < text.size()) {
    const size_t end = text.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos);
    const std::string line = text.substr(begin, end - begin);
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    EXPECT_FALSE(is_done);
    is_done = line == "data: [DONE]";
    if (!is_done) values.push_back(json::parse(line.substr(6)));
    begin = end + 2;
  }
  EXPECT_TRUE(is_done);
  return values;
}

inline std::string streamed_text(const std::vector<json>& values) {
  std::string text;
  for (const json& value : values) {
    for (const json& choice : value["choices"]) {
      text +=
          choice.contains("delta") ? choice["delta"].value("content", "") : choice["text"].get<std::string>();
    }
  }
  return text;
}

inline const std::string kPrompt = " w3 w14 w15 w9 w26";
inline constexpr int64_t kLongContext = 1 << 16;

// What the generator says to the same question.
inline GenerationResult expected(const ServedModel& served, const std::string& prompt, int64_t budget,
                                 int64_t max_new_tokens,
                                 const SamplingConfig& sampling = {.temperature = 0}) {
  GenerationRequest request;
  request.prompt = encode_prompt(*served.tokenizer, prompt, served.bos);
  request.budget = budget;
  request.segment_length = served.segment_length;
  request.max_new_tokens = max_new_tokens;
  request.sampling = sampling;
  request.stop_ids = default_stop_ids(*served.tokenizer);
  request.context_limit = served.context_limit;
  request.continues_text = true;
  request.with_logprobs = true;
  return Generator(served.model, *served.tokenizer).generate(request);
}

inline json question(const std::string& model = "tiny", int64_t max_tokens = 12) {
  return {{"model", model}, {"prompt", kPrompt}, {"max_tokens", max_tokens}, {"temperature", 0}};
}

inline std::string error_text(const Reply& reply) {
  return reply.body.is_object() && reply.body.contains("error")
             ? reply.body["error"]["message"].get<std::string>()
             : "no error: " + reply.text;
}

// True as soon as `condition` is, within ten seconds.
inline bool eventually(const std::function<bool()>& condition) {
  for (int tries = 0; tries < 500; ++tries) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace smoe::testing
