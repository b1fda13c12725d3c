#include "eval/judge_connection.h"

#include <httplib.h>
#include <time.h>

#include <charconv>
#include <chrono>

#include "smoe/core/error.h"
#include "smoe/core/tool.h"

namespace smoe {
namespace {

constexpr size_t kQuotedBytes = 2000;  // of a server's answer that makes no sense

using Clock = std::chrono::steady_clock;

std::chrono::microseconds microseconds(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}

std::string quoted(const std::string& body) {
  if (body.size() <= kQuotedBytes) return body;
  return body.substr(0, kQuotedBytes) + fmt::format("... ({} bytes in all)", body.size());
}

ExchangeOutcome outcome_of_status(int status) {
  if (status == 408 || status == 425 || status == 429 || status >= 500) return ExchangeOutcome::kTryAgain;
  if (status < 400 || status == 401 || status == 402 || status == 403 || status == 404) {
    return ExchangeOutcome::kHopeless;
  }
  return ExchangeOutcome::kRefused;
}

std::string status_problem(const httplib::Response& response) {
  std::string remedy;
  if (response.status == 401 || response.status == 403) remedy = "; check the key and what it may use";
  if (response.status == 404) remedy = "; check the base URL and the name of the judge model";
  if (response.status == 402) remedy = "; the account needs credit";
  if (response.status >= 300 && response.status < 400) {
    remedy = fmt::format("; the server redirects to {}: use that address as base URL",
                         response.get_header_value("Location"));
  }
  return fmt::format("HTTP status {}{}", response.status, remedy);
}

// Fills `reply` from a chat completion; false if it is none.
bool read_completion(const std::string& body, JudgeReply& reply) {
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object()) return false;
  try {
    const nlohmann::json& choice = json.at("choices").at(0);
    const nlohmann::json& content = choice.at("message").at("content");
    reply.text = content.is_null() ? "" : content.get<std::string>();
    if (choice.contains("logprobs")) reply.logprobs = choice["logprobs"];
    if (const auto usage = json.find("usage"); usage != json.end() && usage->is_object()) {
      reply.prompt_tokens = usage->value("prompt_tokens", int64_t{0});
      reply.completion_tokens = usage->value("completion_tokens", int64_t{0});
    }
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  reply.answered = true;
  return true;
}

}  // namespace

BaseUrl::BaseUrl(const std::string& text) {
  const auto require = [&](bool condition, const char* reason) {
    SMOE_CHECK(ConfigError, condition,
               "base URL of the judge: {}; expected http://HOST[:PORT][/PATH] or https://..., for example "
               "https://api.openai.com/v1",
               reason);
  };
  const size_t scheme_end = text.find("://");
  const std::string scheme = text.substr(0, scheme_end == std::string::npos ? 0 : scheme_end);
  // The text itself is not repeated: a URL with a password would end up in logs.
  require(scheme == "http" || scheme == "https", "it does not begin with http:// or https://");
  require(text.find('@') == std::string::npos, "it holds a user name; give the key by --api-key-env");
  require(text.find_first_of("?# \t\n") == std::string::npos, "it holds a query, a fragment or a space");
  is_encrypted = scheme == "https";
  const size_t host_begin = scheme_end + 3;
  const size_t host_end = std::min(text.find('/', host_begin), text.size());
  host = text.substr(host_begin, host_end - host_begin);
  if (const size_t colon = host.rfind(':'); colon != std::string::npos && host.back() != ']') {
    int port = 0;
    const auto [end, error] = std::from_chars(host.data() + colon + 1, host.data() + host.size(), port);
    require(error == std::errc() && end == host.data() + host.size() && port > 0 && port < 65536,
            "its port is no number from 1 to 65535");
    host.resize(colon);
  }
  require(!host.empty(), "it names no host");
  origin = text.substr(0, host_end);
  path = text.substr(host_end);
  while (path.ends_with('/')) path.pop_back();
}

std::optional<double> parse_retry_after(const std::string& header) {
  double seconds = 0.0;
  const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), seconds);
  if (error == std::errc() && end == header.data() + header.size() && seconds >= 0.0) return seconds;
  std::tm date{};
  if (::strptime(header.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date) == nullptr) return std::nullopt;
  return std::max(0.0, std::difftime(::timegm(&date), std::time(nullptr)));
}

JudgeConnection::JudgeConnection(const JudgeEndpoint& endpoint, std::string key)
    : endpoint_(endpoint), key_(std::move(key)) {
  const BaseUrl url(endpoint.base_url);
  path_ = url.path + "/chat/completions";
  client_ = std::make_unique<httplib::Client>(url.origin);
  client_->set_keep_alive(true);
  // Header and body are two writes; without this the second waits for the acknowledgement of the first.
  client_->set_tcp_nodelay(true);
  client_->set_connection_timeout(microseconds(endpoint.connect_timeout_s));
  client_->set_read_timeout(microseconds(endpoint.request_timeout_s));
  client_->set_write_timeout(microseconds(endpoint.request_timeout_s));
}

JudgeConnection::~JudgeConnection() = default;

std::string JudgeConnection::without_key(std::string text) const {
  if (key_.empty()) return text;
  for (size_t at = text.find(key_); at != std::string::npos; at = text.find(key_, at)) {
    text.replace(at, key_.size(), "[key]");
  }
  return text;
}

Exchange JudgeConnection::post(const std::string& body) {
  httplib::Request request;
  request.method = "POST";
  request.path = path_;
  request.headers = {{"Content-Type", "application/json"}, {"Accept", "application/json"}};
  if (!key_.empty()) request.headers.emplace("Authorization", "Bearer " + key_);
  request.body = body;
  // The read time-out counts silence only; this ends an answer that trickles in for ever.
  const auto deadline = Clock::now() + microseconds(endpoint_.request_timeout_s);
  request.progress = [deadline](uint64_t, uint64_t) { return Clock::now() < deadline; };

  Exchange exchange;
  const httplib::Result result = client_->send(request);
  if (!result) {
    const bool late = Clock::now() >= deadline;
    exchange.reply.problem = late ? fmt::format("no complete answer within {} s", endpoint_.request_timeout_s)
                                  : fmt::format("no answer ({})", httplib::to_string(result.error()));
    // A certificate does not become valid by asking again.
    const bool untrusted = result.error() == httplib::Error::SSLServerVerification ||
                           result.error() == httplib::Error::SSLLoadingCerts;
    if (untrusted) exchange.outcome = ExchangeOutcome::kHopeless;
    return exchange;
  }
  const std::string answer = without_key(result->body);
  if (result->status == 200) {
    if (read_completion(answer, exchange.reply)) {
      exchange.outcome = ExchangeOutcome::kAnswered;
      return exchange;
    }
    exchange.reply = {};
    exchange.reply.problem = "the answer is no chat completion";
  } else {
    exchange.outcome = outcome_of_status(result->status);
    exchange.reply.problem = without_key(status_problem(*result));
    exchange.retry_after_s = parse_retry_after(result->get_header_value("Retry-After")).value_or(0.0);
  }
  exchange.reply.text = quoted(answer);
  return exchange;
}

}  // namespace smoe
