// An HTTP server that speaks OpenAI's completions and chat completions for one model, with one model name a
// budget.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "smoe/serve/scheduler.h"
#include "smoe/serve/served_model.h"

namespace smoe {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;           // 0: any free one
  std::string api_key = "";  // empty: no key is asked for
  int64_t max_body_bytes = int64_t{1} << 20;
  int64_t max_output_tokens = 4096;
  int64_t max_connections = 64;
  double read_timeout_s = 30;  // for the whole of a request's header and body
  SchedulerLimits scheduler = {};
};

class Server {
 public:
  // Binds, but does not answer yet. Throws ConfigError if the address cannot be used.
  Server(ServedModel served, ServerOptions options);
  // Ends what still runs.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  // Answers in threads of its own until shutdown().
  void start();
  // Refuses new requests, lets running ones finish for `grace_s` seconds, then ends the rest and closes.
  void shutdown(double grace_s);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace smoe
