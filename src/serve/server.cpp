#include "smoe/serve/server.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <thread>

#include "api_response.h"
#include "connection.h"
#include "smoe/core/tool.h"

namespace smoe {
namespace {

constexpr std::chrono::milliseconds kSendingTime{2000};   // for the ends of answers, at shutdown
constexpr std::chrono::milliseconds kListenInterval{50};  // between two looks whether the client is there

void set_json(httplib::Response& response, int status, const nlohmann::json& value) {
  response.status = status;
  response.set_content(json_text(value), "application/json");
}

void set_error(httplib::Response& response, const ApiError& error) {
  set_json(response, error.status(), error.body());
  if (error.status() == 429 || error.status() == 503) response.set_header("Retry-After", "1");
  if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
}

ApiError body_too_large(int64_t most) {
  return {413, "body_too_large",
          fmt::format("the body has more than {} bytes, the most this server reads", most)};
}

// The time does not depend on where the first difference is.
bool equal_secrets(const std::string& given, const std::string& expected) {
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |=
        static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(expected[i % expected.size()]);
  }
  return difference == 0;
}

// Counts an answer as long as it lives.
class AnswerCount {
 public:
  explicit AnswerCount(std::atomic<int64_t>& count) : count_(&count, [](auto* counter) { --*counter; }) {
    ++count;
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> count_;
};

// An answer on its way to a client as server-sent events.
struct AnswerStream {
  AnswerStream(AnswerWriter answer_writer, std::shared_ptr<Ticket> from, ServeEvent first_event,
               AnswerCount counted)
      : count(std::move(counted)),
        writer(std::move(answer_writer)),
        ticket(std::move(from)),
        event(std::move(first_event)) {}

  // Sends the next event; false if nobody listens any more.
  bool send(httplib::DataSink& sink) {
    if (!event) event = ticket->next(kListenInterval);
    if (!event) return ClientConnection::current().is_alive();
    std::string lines = has_begun ? "" : writer.first_chunk();
    has_begun = true;
    writer.add(*event);
    if (event->error) {
      lines += sse_data(event->error->body());
    } else {
      lines += writer.chunk(*event);
      if (event->finish) lines += writer.usage_chunk() + kSseDone;
    }
    const bool is_last = event->is_last();
    event.reset();
    if (!lines.empty() && !sink.write(lines.data(), lines.size())) return false;
    if (is_last) sink.done();
    return true;
  }

  AnswerCount count;
  AnswerWriter writer;
  std::shared_ptr<Ticket> ticket;
  std::optional<ServeEvent> event;
  bool has_begun = false;
};

// None if the client has gone.
std::optional<ServeEvent> next_event(Ticket& ticket) {
  // Asked before every event: while tokens come fast, none of the waits runs out.
  while (ClientConnection::current().is_alive()) {
    if (std::optional<ServeEvent> event = ticket.next(kListenInterval)) return event;
  }
  ticket.cancel();
  return std::nullopt;
}

}  // namespace

struct Server::Implementation {
  Implementation(ServedModel model, ServerOptions server_options)
      : served(std::move(model)),
        options(std::move(server_options)),
        catalog(served.name, served.model.config(), served.default_budget),
        scheduler(served, options.scheduler, metrics),
        http(options.max_connections, options.read_timeout_s,
             json_text(ApiError(503, "too_many_connections",
                                fmt::format("{} connections are open already", options.max_connections))
                           .body())) {}

  void bind();
  void add_routes();
  void add_post_routes();
  void check_key(const httplib::Request& request) const;
  std::string read_body(const httplib::Request& request, const httplib::ContentReader& reader) const;
  void answer(ApiKind kind, const httplib::Request& request, httplib::Response& response,
              const httplib::ContentReader& reader);
  nlohmann::json model_list() const;
  nlohmann::json health();
  void count(const httplib::Request& request, const httplib::Response& response);

  const ServedModel served;
  const ServerOptions options;
  const ModelCatalog catalog;
  const int64_t created = static_cast<int64_t>(std::time(nullptr));
  ServerMetrics metrics;
  std::atomic<int64_t> num_answers = 0;
  Scheduler scheduler;
  BoundedServer http;
  std::thread listener;
  int port = 0;
};

void Server::Implementation::bind() {
  if (options.port == 0) {
    port = http.bind_to_any_port(options.host);
  } else if (http.bind_to_port(options.host, options.port)) {
    port = options.port;
  }
  SMOE_CHECK(ConfigError, port > 0,
             "cannot listen on {}:{}; is another server there, or is this no address of the machine?",
             options.host, options.port);
}

void Server::Implementation::check_key(const httplib::Request& request) const {
  if (options.api_key.empty() || request.path == "/health") return;
  const std::string header = request.get_header_value("Authorization");
  const std::string kPrefix = "Bearer ";
  if (header.starts_with(kPrefix) && equal_secrets(header.substr(kPrefix.size()), options.api_key)) return;
  // A body that is not read must not be taken for a request.
  ClientConnection::current().close_after_response();
  throw ApiError(401, "invalid_api_key",
                 "this server needs its API key in the header Authorization: Bearer KEY");
}

std::string Server::Implementation::read_body(const httplib::Request& request,
                                              const httplib::ContentReader& reader) const {
  ClientConnection& connection = ClientConnection::current();
  const auto most = static_cast<uint64_t>(options.max_body_bytes);
  const bool is_announced = request.get_header_value<uint64_t>("Content-Length") > most;
  std::string body;
  bool is_too_large = is_announced;
  if (!is_announced) {
    connection.allow_body();
    const bool is_complete = reader([&](const char* data, size_t size) {
      is_too_large = body.size() + size > most;
      if (!is_too_large) body.append(data, size);
      return !is_too_large;
    });
    if (is_complete && !is_too_large) return body;
  }
  // The rest of the body must not be taken for a request.
  connection.close_after_response();
  if (is_too_large) throw body_too_large(options.max_body_bytes);
  throw ApiError(400, "incomplete_body", "the body could not be read completely");
}

void Server::Implementation::answer(ApiKind kind, const httplib::Request& request,
                                    httplib::Response& response, const httplib::ContentReader& reader) {
  const AnswerCount count_of_this(num_answers);
  const nlohmann::json body = parse_request_body(read_body(request, reader));
  const ApiRequest parsed = parse_api_request(kind, body, served, catalog, options.max_output_tokens);
  const std::shared_ptr<Ticket> ticket = scheduler.submit(parsed.model_id, parsed.generation);
  // What goes wrong before the first token still gets a status of its own, also where the answer is streamed.
  std::optional<ServeEvent> event = next_event(*ticket);
  AnswerWriter writer(parsed, *served.tokenizer);
  if (event && !event->error && parsed.stream) {
    auto stream = std::make_shared<AnswerStream>(std::move(writer), ticket, std::move(*event), count_of_this);
    response.status = 200;
    response.set_header("Cache-Control", "no-cache");
    response.set_chunked_content_provider(
        "text/event-stream", [stream](size_t, httplib::DataSink& sink) { return stream->send(sink); },
        // After the last event this changes nothing.
        [stream](bool) { stream->ticket->cancel(); });
    return;
  }
  while (event && !event->is_last()) {
    writer.add(*event);
    event = next_event(*ticket);
  }
  if (!event) {
    ClientConnection::current().close_after_response();
    throw ApiError(499, "client_gone", "the client has closed the connection");
  }
  if (event->error) throw ApiError(*event->error);
  writer.add(*event);
  set_json(response, 200, writer.whole());
}

nlohmann::json Server::Implementation::model_list() const {
  nlohmann::json models = nlohmann::json::array();
  const ModelConfig& config = served.model.config();
  for (const ModelCatalog::Entry& entry : catalog.entries()) {
    nlohmann::json model = {
        {"id", entry.id}, {"object", "model"}, {"created", created}, {"owned_by", "smoe"}};
    if (config.architecture != Architecture::kDense) {
      const BudgetConfig& budget = config.budgets[static_cast<size_t>(entry.budget)];
      model["budget"] = budget.name;
      model["experts_per_layer"] = budget.experts_per_layer;
    }
    model["max_model_len"] = served.context_limit;
    models.push_back(std::move(model));
  }
  return {{"object", "list"}, {"data", std::move(models)}};
}

nlohmann::json Server::Implementation::health() {
  return {{"status", "ok"}, {"model", served.name}, {"version", version()}};
}

void Server::Implementation::add_routes() {
  http.set_keep_alive_max_count(1000);
  http.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response&) {
    check_key(request);
    return httplib::Server::HandlerResponse::Unhandled;
  });
  http.Get("/health", [this](const httplib::Request&, httplib::Response& response) {
    set_json(response, 200, health());
  });
  http.Get("/v1/models", [this](const httplib::Request&, httplib::Response& response) {
    set_json(response, 200, model_list());
  });
  http.Get(R"(/v1/models/(.+))", [this](const httplib::Request& request, httplib::Response& response) {
    const std::string id = catalog.find(request.matches[1].str()).id;
    const nlohmann::json list = model_list();
    for (const nlohmann::json& model : list["data"]) {
      if (model["id"] == id) set_json(response, 200, model);
    }
  });
  http.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics.text(served.experts.get()), "text/plain; version=0.0.4");
  });
  add_post_routes();
  http.set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, std::exception_ptr error) {
        try {
          std::rethrow_exception(error);
        } catch (const ApiError& api_error) {
          set_error(response, api_error);
        } catch (const std::exception& other) {
          spdlog::error("a request failed: {}", other.what());
          set_error(response, ApiError(500, "internal_error", other.what()));
        }
      });
  http.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    const bool is_unknown = response.status == 404;
    set_error(
        response,
        ApiError(response.status, is_unknown ? "not_found" : "bad_request",
                 is_unknown ? fmt::format("there is no {} {}; see docs/serving.md for the paths",
                                          request.method, request.path)
                            : fmt::format("the request cannot be read (HTTP status {})", response.status)));
  });
  http.set_logger([this](const httplib::Request& request, const httplib::Response& response) {
    count(request, response);
  });
}

void Server::Implementation::add_post_routes() {
  using Reader = httplib::ContentReader;
  const auto add = [this](const char* path, ApiKind kind) {
    http.Post(path, [this, kind](const httplib::Request& request, httplib::Response& response,
                                 const Reader& reader) { answer(kind, request, response, reader); });
  };
  add("/v1/completions", ApiKind::kCompletion);
  add("/v1/chat/completions", ApiKind::kChat);
  // Without reading the body.
  http.Post(".*", [](const httplib::Request&, httplib::Response& response, const Reader&) {
    ClientConnection::current().close_after_response();
    response.status = 404;
  });
}

void Server::Implementation::count(const httplib::Request& request, const httplib::Response& response) {
  std::string endpoint = "other";
  for (const char* known : {"/health", "/metrics", "/v1/models", "/v1/completions", "/v1/chat/completions"}) {
    if (request.path == known) endpoint = known;
  }
  metrics.count_response(endpoint, response.status);
}

Server::Server(ServedModel served, ServerOptions options)
    : implementation_(std::make_unique<Implementation>(std::move(served), std::move(options))) {
  implementation_->add_routes();
  implementation_->bind();
}

Server::~Server() { shutdown(0); }

int Server::port() const { return implementation_->port; }

void Server::start() {
  implementation_->listener = std::thread([this] { implementation_->http.listen_after_bind(); });
  while (!implementation_->http.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Server::shutdown(double grace_s) {
  implementation_->scheduler.shutdown(grace_s);
  // Closing ends streams, so that what the scheduler has handed out must be sent before.
  const auto end = std::chrono::steady_clock::now() + kSendingTime;
  while (implementation_->num_answers > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  implementation_->http.stop();
  if (implementation_->listener.joinable()) implementation_->listener.join();
}

}  // namespace smoe
