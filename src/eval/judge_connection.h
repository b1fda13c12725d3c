// One HTTP exchange with a judge and what its outcome calls for (internal to the judge client).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "smoe/eval/judge_client.h"

namespace httplib {
class Client;
}

namespace smoe {

enum class ExchangeOutcome {
  kAnswered,
  kTryAgain,  // busy, broken or silent: the next attempt may succeed
  kRefused,   // this request is at fault
  kHopeless,  // every request would fail alike
};

struct Exchange {
  ExchangeOutcome outcome = ExchangeOutcome::kTryAgain;
  JudgeReply reply;
  double retry_after_s = 0.0;  // the pause that the server asked for
};

// The parts of a base URL. Throws ConfigError unless it is http(s)://host[:port][/path] without user, query
// and fragment.
struct BaseUrl {
  explicit BaseUrl(const std::string& text);
  std::string origin;  // "https://host:port"
  std::string path;    // "/v1", without a slash at the end
  std::string host;
  bool is_encrypted = false;
};

// Seconds from now that a Retry-After header names, as a number or as an HTTP date; none if it is neither.
std::optional<double> parse_retry_after(const std::string& header);

// A connection of one thread; kept open between exchanges.
class JudgeConnection {
 public:
  JudgeConnection(const JudgeEndpoint& endpoint, std::string key);
  ~JudgeConnection();
  // Sends one request and waits for its answer. Does not throw for anything that the other side does.
  Exchange post(const std::string& body);

 private:
  std::string without_key(std::string text) const;

  const JudgeEndpoint& endpoint_;
  std::string key_;
  std::string path_;
  std::unique_ptr<httplib::Client> client_;
};

}  // namespace smoe
