// smoe-serve: answers OpenAI's completions and chat completions over HTTP, at the budget that a request
// names.
#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "command_line.h"
#include "smoe/core/error.h"
#include "smoe/core/tool.h"
#include "smoe/infer/streaming_model.h"
#include "smoe/model/device.h"
#include "smoe/serve/server.h"
#include "streaming_arguments.h"

namespace {

struct Arguments {
  smoe::ModelSource source;
  smoe::ServerOptions server;
  smoe::StreamingArguments streaming;
  std::string api_key_variable;
  int64_t num_threads = 0;
  double grace_s = 30;
  std::string weights = "fp32";
};

void add_model_options(CLI::App& app, Arguments& arguments) {
  smoe::ModelSource& source = arguments.source;
  app.add_option("--checkpoint", source.checkpoint,
                 "checkpoint folder, or run folder for its newest checkpoint");
  arguments.streaming.add_to(app);
  app.add_option("--name", source.name,
                 "models are called NAME (default budget) and NAME-BUDGET; default: smoe");
  app.add_option("--budget", source.default_budget, "name or k of the default budget; default: the largest");
  app.add_option("--segment-length", source.segment_length,
                 "tokens between two choices of experts, where a request names none; default: as trained")
      ->check(CLI::PositiveNumber);
  app.add_option("--template", source.chat_template, "YAML of the chat template; default: the checkpoint's");
  app.add_option("--bos", source.bos, "token before each prompt: auto (BOS if defined), always, never or eos")
      ->capture_default_str();
  app.add_option("--context-limit", source.context_limit,
                 "most tokens of prompt and answer; default: data.sequence_length of the checkpoint")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch-rows", source.max_rows, "answers computed at the same time")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", arguments.num_threads, "CPU threads; 0: all cores of this process")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--device", source.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--weights", arguments.weights,
                 "how weights in memory are rounded and read while decoding on the CPU")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "int8"}));
}

void add_server_options(CLI::App& app, Arguments& arguments) {
  smoe::ServerOptions& server = arguments.server;
  app.add_option("--host", server.host, "address to listen on; others than 127.0.0.1 open it to the network")
      ->capture_default_str();
  app.add_option("--port", server.port, "0: any free one, which is printed")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_option("--api-key-env", arguments.api_key_variable,
                 "environment variable with the key that clients must send");
  app.add_option("--max-body-bytes", server.max_body_bytes, "largest request body")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--max-output-tokens", server.max_output_tokens, "most tokens that a request may ask for")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--max-queue", server.scheduler.max_waiting,
                 "requests that wait; further ones get status 429")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--max-connections", server.max_connections, "open connections; further ones get status 503")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--request-timeout", server.scheduler.request_timeout_s,
                 "seconds from the arrival of a request to its last token")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--read-timeout", server.read_timeout_s, "seconds for a request to arrive")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--grace", arguments.grace_s, "seconds that running answers get after SIGTERM or SIGINT")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

void complete(Arguments& arguments) {
  if (!arguments.streaming.package.empty()) {
    arguments.source.package = arguments.streaming.package;
    arguments.source.memory_limit = arguments.streaming.memory_limit_bytes();
    arguments.source.store = arguments.streaming.store_config();
  }
  if (!arguments.api_key_variable.empty()) {
    const char* key = std::getenv(arguments.api_key_variable.c_str());
    SMOE_CHECK(ConfigError, key != nullptr && *key != '\0',
               "--api-key-env {}: this variable is not set or empty, so that anyone could ask",
               arguments.api_key_variable);
    arguments.server.api_key = key;
  }
}

// Every thread that is started later inherits the mask, so that only wait() sees the signals.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  // Returns at the first signal; the second one ends the process at once.
  int wait() const {
    int signal = 0;
    sigwait(&signals_, &signal);
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    return signal;
  }

 private:
  sigset_t signals_{};
};

int run(Arguments& arguments) {
  complete(arguments);
  smoe::set_num_threads(arguments.num_threads);
  arguments.source.weights = smoe::enum_from_name<smoe::ExpertEncoding>(arguments.weights).value();
  smoe::ServedModel served = smoe::open_served_model(arguments.source);
  const StopSignals signals;
  smoe::Server server(std::move(served), arguments.server);
  server.start();
  fmt::print("listening on http://{}:{}\n", arguments.server.host, server.port());
  std::fflush(stdout);
  const int signal = signals.wait();
  fmt::print(stderr, "signal {}: finishing running answers, for {} s at most\n", signal, arguments.grace_s);
  server.shutdown(arguments.grace_s);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Serves a checkpoint over HTTP like OpenAI's API; the field `model` of a request names the budget.");
  Arguments arguments;
  add_model_options(app, arguments);
  add_server_options(app, arguments);
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;
  return smoe::run_tool([&] { return run(arguments); });
}
