// Asks a judge behind an OpenAI-compatible chat completions endpoint, many requests at a time, and keeps
// every answer in a log so that a killed run asks only for what is missing. It does not know what the answers
// mean.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace smoe {

// Where the judge is and how patiently it is asked.
struct JudgeEndpoint {
  std::string base_url;                // "https://host[:port][/path]"; "/chat/completions" is added
  std::string model;                   // as the endpoint calls it
  std::string api_key_variable;        // environment variable with the key; empty: no key is sent
  int64_t concurrency = 8;             // requests in flight at once, at least 1
  int64_t max_attempts = 6;            // of one request, at least 1
  double request_timeout_s = 180.0;    // from sending a request to the last byte of its answer
  double connect_timeout_s = 20.0;     // to reach the host
  double first_delay_s = 1.0;          // before the second attempt; doubles with each further one
  double longest_delay_s = 60.0;       // where the doubling ends
  double longest_retry_after_s = 600;  // a server that asks for a longer pause fails the request
  int64_t give_up_after = 10;          // requests failed one after another that stop the run
  double prompt_price = 0.0;           // money a million prompt tokens
  double completion_price = 0.0;       // money a million completion tokens
};

// Throws ConfigError naming the option for values out of range and URLs that cannot be used.
void validate(const JudgeEndpoint& endpoint);

// Sent with every request.
struct JudgeSampling {
  double temperature = 0.0;
  int64_t max_tokens = 4096;
  int64_t top_logprobs = 0;                     // 0: no log-probabilities are asked for
  std::string max_tokens_field = "max_tokens";  // newer endpoints want max_completion_tokens
};

struct JudgeMessage {
  std::string role;  // system, user or assistant
  std::string content;
};

struct JudgeRequest {
  std::string label;  // for people, in the log and in messages
  std::vector<JudgeMessage> messages;
};

struct JudgeReply {
  bool answered = false;
  std::string text;         // what the judge said; what the server said where `answered` is false
  nlohmann::json logprobs;  // the endpoint's `logprobs` object; null if there is none
  std::string problem;      // why there is no answer
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

// Totals over the lifetime of a client. Tokens and cost are of all answers, also those from the log.
struct JudgeUsage {
  int64_t asked = 0;    // requests sent for the first time
  int64_t resumed = 0;  // answers found in the log
  int64_t retries = 0;  // further attempts
  int64_t failed = 0;   // requests without an answer in the end
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  double cost = 0.0;
};

class JudgeLog;

class JudgeClient {
 public:
  // `log` is created, or read if it is there. Throws ConfigError for an unusable endpoint or an unset key,
  // and DataError for a damaged log. The key is kept in memory only; where a server repeats it, it is blotted
  // out.
  JudgeClient(JudgeEndpoint endpoint, JudgeSampling sampling, const std::filesystem::path& log);
  ~JudgeClient();

  // The replies in the order of the requests. Tries again, with growing pauses, after 408, 425, 429 and 5xx,
  // lost connections, time-outs and answers that are no chat completion; a Retry-After header is obeyed. A
  // request that gets no answer is returned with its problem. Throws Error where asking on is pointless: the
  // key is refused (401, 403), the address is wrong (404, a redirect), payment is due (402) or
  // `give_up_after` requests failed in a row; what was answered is in the log.
  std::vector<JudgeReply> answer(const std::vector<JudgeRequest>& requests);

  const JudgeUsage& usage() const { return usage_; }

 private:
  JudgeEndpoint endpoint_;
  JudgeSampling sampling_;
  std::string key_;
  std::unique_ptr<JudgeLog> log_;
  JudgeUsage usage_;
};

}  // namespace smoe
