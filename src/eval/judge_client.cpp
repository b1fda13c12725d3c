#include "smoe/eval/judge_client.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <thread>

#include "eval/judge_connection.h"
#include "eval/judge_log.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"
#include "smoe/core/progress.h"
#include "smoe/core/random.h"

namespace smoe {
namespace {

using Clock = std::chrono::steady_clock;

std::string read_key(const std::string& variable) {
  if (variable.empty()) return "";
  const char* value = std::getenv(variable.c_str());
  SMOE_CHECK(ConfigError, value != nullptr && *value != '\0',
             "the environment variable {} is not set; it must hold the key of the judge's endpoint",
             variable);
  const std::string key = value;
  const bool printable = std::ranges::all_of(key, [](char c) { return c > ' ' && c < '\x7f'; });
  SMOE_CHECK(ConfigError, printable,
             "the environment variable {} holds spaces or characters that are not ASCII; a key has none",
             variable);
  return key;
}

std::string request_body(const JudgeEndpoint& endpoint, const JudgeSampling& sampling,
                         const JudgeRequest& request) {
  nlohmann::ordered_json body = {{"model", endpoint.model},
                                 {"messages", nlohmann::ordered_json::array()},
                                 {"temperature", sampling.temperature},
                                 {sampling.max_tokens_field, sampling.max_tokens}};
  for (const JudgeMessage& message : request.messages) {
    body["messages"].push_back({{"role", message.role}, {"content", message.content}});
  }
  if (sampling.top_logprobs > 0) {
    body["logprobs"] = true;
    body["top_logprobs"] = sampling.top_logprobs;
  }
  return body.dump();
}

struct PendingRequest {
  std::string hash;
  std::string label;
  std::string body;
  JudgeReply reply;
};

// One call of JudgeClient::answer: threads that take requests from a common list.
class JudgeRun {
 public:
  JudgeRun(const JudgeEndpoint& endpoint, const std::string& key, JudgeLog& log,
           std::vector<PendingRequest>& pending)
      : endpoint_(endpoint),
        key_(key),
        log_(log),
        pending_(pending),
        progress_("judging", std::ssize(pending), "requests") {}

  void run() {
    std::vector<std::thread> threads;
    const int64_t num_threads = std::min(endpoint_.concurrency, std::ssize(pending_));
    for (int64_t i = 0; i < num_threads; ++i) threads.emplace_back([this] { work(); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  int64_t retries() const { return retries_; }

 private:
  void work() {
    try {
      JudgeConnection connection(endpoint_, key_);
      while (PendingRequest* request = next()) {
        request->reply = ask(connection, *request);
        if (request->reply.answered) log_.add(request->hash, request->label, request->reply);
        note_end(*request);
        progress_.advance();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  PendingRequest* next() {
    const std::lock_guard lock(mutex_);
    if (failure_ || next_ == pending_.size()) return nullptr;
    return &pending_[next_++];
  }

  // Asks until there is an answer or no point in going on.
  JudgeReply ask(JudgeConnection& connection, const PendingRequest& request) {
    SplitMix64 random(std::stoull(request.hash.substr(0, 16), nullptr, 16));
    for (int64_t attempt = 1;; ++attempt) {
      wait_until(Clock::time_point::min());
      Exchange exchange = connection.post(request.body);
      JudgeReply& reply = exchange.reply;
      if (exchange.outcome == ExchangeOutcome::kHopeless) {
        throw Error(fmt::format("judge {} at {}: {}. The server says: {}. Finished judgements are kept in {}",
                                endpoint_.model, endpoint_.base_url, reply.problem,
                                reply.text.empty() ? "(nothing)" : reply.text, log_.path().string()));
      }
      if (exchange.outcome != ExchangeOutcome::kTryAgain) return std::move(reply);
      if (exchange.retry_after_s > endpoint_.longest_retry_after_s) {
        reply.problem += fmt::format("; asks for a pause of {} s, more than {} s", exchange.retry_after_s,
                                     endpoint_.longest_retry_after_s);
        return std::move(reply);
      }
      if (attempt >= endpoint_.max_attempts) {
        reply.problem += fmt::format("; gave up after {} attempts", attempt);
        return std::move(reply);
      }
      SPDLOG_DEBUG("{}: attempt {}: {}", request.label, attempt, reply.problem);
      pause(attempt, exchange.retry_after_s, random);
    }
  }

  void pause(int64_t attempt, double retry_after_s, SplitMix64& random) {
    const double doubled = endpoint_.first_delay_s * std::exp2(static_cast<double>(attempt - 1));
    // Half of the pause is random, so that threads refused together do not return together.
    const double delay = std::min(doubled, endpoint_.longest_delay_s) * (0.5 + 0.5 * random.uniform());
    const auto after = [](double seconds) {
      return Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    {
      const std::lock_guard lock(mutex_);
      ++retries_;
      // A limit of the server holds for all threads.
      if (retry_after_s > 0.0) not_before_ = std::max(not_before_, after(retry_after_s));
    }
    wait_until(after(delay));
  }

  // Sleeps until `time` and until the server accepts requests again. Throws when another thread has failed.
  void wait_until(Clock::time_point time) {
    std::unique_lock lock(mutex_);
    while (!failure_) {
      const Clock::time_point end = std::max(time, not_before_);
      if (Clock::now() >= end) return;
      changed_.wait_until(lock, end);
    }
    throw Error("stopped because another request failed");
  }

  // Many failures in a row mean that the endpoint is down, not that single requests are at fault.
  void note_end(const PendingRequest& request) {
    const std::lock_guard lock(mutex_);
    failures_in_a_row_ = request.reply.answered ? 0 : failures_in_a_row_ + 1;
    if (request.reply.answered) return;
    SPDLOG_WARN("{}: no judgement: {}", request.label, request.reply.problem);
    SMOE_CHECK(
        Error, failures_in_a_row_ < endpoint_.give_up_after,
        "judge {} at {}: {} requests failed in a row, the last one with: {} {}. Finished judgements are "
        "kept in {}; the same command continues there",
        endpoint_.model, endpoint_.base_url, failures_in_a_row_, request.reply.problem, request.reply.text,
        log_.path().string());
  }

  const JudgeEndpoint& endpoint_;
  const std::string& key_;
  JudgeLog& log_;
  std::vector<PendingRequest>& pending_;
  ProgressBar progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0;
  int64_t retries_ = 0;
  int64_t failures_in_a_row_ = 0;
  Clock::time_point not_before_ = Clock::time_point::min();
  std::exception_ptr failure_;
};

}  // namespace

void validate(const JudgeEndpoint& endpoint) {
  const BaseUrl url(endpoint.base_url);
  SMOE_CHECK(ConfigError, !endpoint.model.empty(), "the judge model has no name; give it with --judge-model");
  const auto require = [](bool condition, const char* name, double value, const char* allowed) {
    SMOE_CHECK(ConfigError, condition, "{} of the judge is {}; allowed is {}", name, value, allowed);
  };
  require(endpoint.concurrency >= 1 && endpoint.concurrency <= 1024, "concurrency",
          static_cast<double>(endpoint.concurrency), "1 to 1024");
  require(endpoint.max_attempts >= 1, "max attempts", static_cast<double>(endpoint.max_attempts),
          "at least 1");
  require(endpoint.give_up_after >= 1, "give up after", static_cast<double>(endpoint.give_up_after),
          "at least 1");
  require(endpoint.request_timeout_s > 0, "request timeout", endpoint.request_timeout_s, "above 0 s");
  require(endpoint.connect_timeout_s > 0, "connect timeout", endpoint.connect_timeout_s, "above 0 s");
  require(endpoint.first_delay_s >= 0, "first delay", endpoint.first_delay_s, "at least 0 s");
  require(endpoint.prompt_price >= 0, "prompt price", endpoint.prompt_price, "at least 0");
  require(endpoint.completion_price >= 0, "completion price", endpoint.completion_price, "at least 0");
}

JudgeClient::JudgeClient(JudgeEndpoint endpoint, JudgeSampling sampling, const std::filesystem::path& log)
    : endpoint_(std::move(endpoint)), sampling_(std::move(sampling)) {
  validate(endpoint_);
  key_ = read_key(endpoint_.api_key_variable);
  const BaseUrl url(endpoint_.base_url);
  const bool is_local = url.host == "localhost" || url.host.starts_with("127.") || url.host == "[::1]";
  if (!key_.empty() && !url.is_encrypted && !is_local) {
    SPDLOG_WARN("the key in {} goes to {} without encryption; use https:// if the endpoint offers it",
                endpoint_.api_key_variable, url.host);
  }
  log_ = std::make_unique<JudgeLog>(log);
}

JudgeClient::~JudgeClient() = default;

std::vector<JudgeReply> JudgeClient::answer(const std::vector<JudgeRequest>& requests) {
  std::vector<std::string> hashes;
  std::vector<PendingRequest> pending;
  std::unordered_map<std::string, size_t> pending_of_hash;
  for (const JudgeRequest& request : requests) {
    std::string body = request_body(endpoint_, sampling_, request);
    hashes.push_back(sha256_of_bytes(body));
    if (log_->find(hashes.back())) {
      ++usage_.resumed;
    } else if (pending_of_hash.emplace(hashes.back(), pending.size()).second) {
      // Equal requests are sent once.
      pending.push_back({hashes.back(), request.label, std::move(body), {}});
    }
  }
  if (usage_.resumed > 0) {
    SPDLOG_INFO("{}: {} of {} judgements are there already", log_->path().string(), usage_.resumed,
                requests.size());
  }
  JudgeRun run(endpoint_, key_, *log_, pending);
  usage_.asked += std::ssize(pending);
  run.run();
  usage_.retries += run.retries();

  std::vector<JudgeReply> replies;
  for (const std::string& hash : hashes) {
    const auto asked = pending_of_hash.find(hash);
    replies.push_back(asked == pending_of_hash.end() ? *log_->find(hash) : pending[asked->second].reply);
    const JudgeReply& reply = replies.back();
    usage_.failed += reply.answered ? 0 : 1;
    usage_.prompt_tokens += reply.prompt_tokens;
    usage_.completion_tokens += reply.completion_tokens;
  }
  usage_.cost = (static_cast<double>(usage_.prompt_tokens) * endpoint_.prompt_price +
                 static_cast<double>(usage_.completion_tokens) * endpoint_.completion_price) /
                1e6;
  return replies;
}

}  // namespace smoe
