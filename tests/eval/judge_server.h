// A judge on the loopback for tests: an HTTP server in this process that answers as it is told and remembers
// what it was asked.
#pragma once

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "smoe/eval/judge_client.h"

namespace smoe::testing {

// A chat completion that says `text`; `logprobs` lists tokens of the first place with their
// log-probabilities.
inline std::string completion(const std::string& text,
                              const std::vector<std::pair<std::string, double>>& logprobs = {}) {
  nlohmann::json choice = {{"index", 0}, {"message", {{"role", "assistant"}, {"content", text}}}};
  if (!logprobs.empty()) {
    nlohmann::json top = nlohmann::json::array();
    for (const auto& [token, value] : logprobs) top.push_back({{"token", token}, {"logprob", value}});
    choice["logprobs"] = {{"content", {{{"token", text}, {"top_logprobs", top}}}}};
  }
  return nlohmann::json{{"choices", {choice}}, {"usage", {{"prompt_tokens", 100}, {"completion_tokens", 7}}}}
      .dump();
}

class JudgeServer {
 public:
  // `number` counts requests from 1 in the order of their arrival.
  using Handler = std::function<void(int number, const nlohmann::json& body, const httplib::Request&,
                                     httplib::Response&)>;

  explicit JudgeServer(Handler handler) : handler_(std::move(handler)) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(16); };
    server_.Post("/v1/chat/completions",
                 [this](const httplib::Request& request, httplib::Response& response) {
                   const int now = ++in_flight_;
                   int number = 0;
                   {
                     const std::lock_guard lock(mutex_);
                     bodies_.push_back(request.body);
                     number = static_cast<int>(bodies_.size());
                     most_in_flight_ = std::max(most_in_flight_, now);
                     authorizations_.push_back(request.get_header_value("Authorization"));
                   }
                   handler_(number, nlohmann::json::parse(request.body), request, response);
                   --in_flight_;
                 });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~JudgeServer() {
    server_.stop();
    thread_.join();
  }

  // An endpoint with short pauses.
  JudgeEndpoint endpoint() const {
    JudgeEndpoint endpoint;
    endpoint.base_url = "http://127.0.0.1:" + std::to_string(port_) + "/v1";
    endpoint.model = "judge-1";
    endpoint.concurrency = 4;
    endpoint.max_attempts = 3;
    endpoint.first_delay_s = 0.002;
    endpoint.request_timeout_s = 5.0;
    return endpoint;
  }
  std::vector<std::string> bodies() const {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }
  size_t num_requests() const { return bodies().size(); }
  int most_in_flight() const { return most_in_flight_; }
  std::vector<std::string> authorizations() const { return authorizations_; }

 private:
  Handler handler_;
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::vector<std::string> authorizations_;
  std::atomic<int> in_flight_ = 0;
  int most_in_flight_ = 0;
};

inline std::vector<JudgeRequest> numbered_requests(int count) {
  std::vector<JudgeRequest> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back({"request " + std::to_string(i), {{"user", "question " + std::to_string(i)}}});
  }
  return requests;
}

inline std::string file_text(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

inline void write_text_file(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file) << text;
}

// The message of the error of type E that `function` throws; "" if it throws none.
template <class E, class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace smoe::testing
