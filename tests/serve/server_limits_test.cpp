// What clients may do to the server, and what they may not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "serve/serve_test_support.h"

namespace smoe {
namespace {

using testing::error_text;
using testing::eventually;
using ::testing::HasSubstr;
using testing::json;
using testing::kLongContext;
using testing::question;
using testing::Reply;
using testing::RunningServer;
using testing::stepped_served;

TEST(Server, BodiesBeyondTheLimitAreRefusedUnread) {
  RunningServer server(stepped_served(), {.max_body_bytes = 300});
  EXPECT_EQ(server.post("/v1/completions", question()).status, 200);
  json asked = question();
  asked["padding"] = std::string(1000, 'x');
  const Reply reply = server.post("/v1/completions", asked);
  EXPECT_EQ(reply.status, 413) << reply.text;
  EXPECT_THAT(error_text(reply), HasSubstr("300"));
  // Chunked bodies do not say how long they are.
  const std::string body = asked.dump();
  httplib::Client client = server.client();
  const httplib::Result chunked = client.Post(
      "/v1/completions",
      [&](size_t, httplib::DataSink& sink) {
        sink.write(body.data(), body.size());
        sink.done();
        return true;
      },
      "application/json");
  ASSERT_TRUE(chunked);
  EXPECT_EQ(chunked->status, 413);
}

TEST(Server, AsksForItsKey) {
  RunningServer server(stepped_served(), {.api_key = "secret"});
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.get("/health").status, 200);
  httplib::Client client = server.client();
  EXPECT_EQ(client.Get("/v1/models", httplib::Headers{{"Authorization", "Bearer secret"}})->status, 200);
  EXPECT_EQ(client.Get("/v1/models", httplib::Headers{{"Authorization", "Bearer secreT"}})->status, 401);
  EXPECT_EQ(client.Get("/v1/models", httplib::Headers{{"Authorization", "Bearer secret2"}})->status, 401);
}

// A question that takes seconds unless somebody ends it.
json endless_question(bool stream) {
  json asked = question("tiny", 60000);
  asked["stream"] = stream;
  return asked;
}
ServerOptions patient_options() { return {.max_output_tokens = kLongContext, .scheduler = {}}; }

TEST(Server, AClientThatLeavesEndsItsAnswer) {
  RunningServer server(stepped_served(kLongContext), patient_options());
  for (const bool stream : {true, false}) {
    httplib::Client client = server.client();
    client.set_read_timeout(0, 200000);
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = endless_question(stream).dump();
    request.content_receiver = [](const char*, size_t, uint64_t, uint64_t) { return false; };
    EXPECT_FALSE(client.send(request));
    client.stop();
    EXPECT_TRUE(eventually([&] {
      return server.metric(R"(smoe_requests_total{model="tiny",outcome="cancelled"})") == (stream ? 1 : 2) &&
             server.metric("smoe_running_requests") == 0;
    })) << stream;
  }
}

TEST(Server, AFullQueueRefusesWithRetryAfter) {
  ServedModel served = stepped_served(kLongContext);
  served.session.max_rows = 1;
  ServerOptions options = patient_options();
  options.scheduler.max_waiting = 1;
  options.scheduler.request_timeout_s = 3;
  RunningServer server(std::move(served), options);
  const auto ask = [&] { return server.post("/v1/completions", endless_question(false)); };
  std::future<Reply> running = std::async(std::launch::async, ask);
  ASSERT_TRUE(eventually([&] { return server.metric("smoe_running_requests") == 1; }));
  std::future<Reply> waiting = std::async(std::launch::async, ask);
  ASSERT_TRUE(eventually([&] { return server.metric("smoe_queue_length") == 1; }));
  const Reply refused = ask();
  EXPECT_EQ(refused.status, 429) << refused.text;
  EXPECT_EQ(refused.headers.count("Retry-After"), 1u);
  EXPECT_EQ(refused.body["error"]["type"], "rate_limit_error");
  // Both run into their time-outs.
  const Reply late = running.get();
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(late.body["error"]["code"], "timeout");
  EXPECT_EQ(waiting.get().status, 503);
}

TEST(Server, ConnectionsBeyondTheLimitGetAnAnswer) {
  RunningServer server(stepped_served(kLongContext),
                       {.max_output_tokens = kLongContext, .max_connections = 2});
  httplib::Client first = server.client(), second = server.client();
  for (httplib::Client* client : {&first, &second}) {
    client->set_keep_alive(true);
    EXPECT_EQ(client->Get("/health")->status, 200);
  }
  const Reply third = server.get("/health");
  EXPECT_EQ(third.status, 503);
  EXPECT_EQ(third.body["error"]["code"], "too_many_connections");
}

TEST(Server, ShuttingDownFinishesOrEndsWhatRuns) {
  RunningServer server(stepped_served(kLongContext), patient_options());
  std::future<Reply> endless =
      std::async(std::launch::async, [&] { return server.post("/v1/completions", endless_question(true)); });
  ASSERT_TRUE(eventually([&] { return server.metric("smoe_running_requests") == 1; }));
  std::future<Reply> brief =
      std::async(std::launch::async, [&] { return server.post("/v1/completions", question("tiny", 100)); });
  ASSERT_TRUE(eventually([&] {
    return server.metric("smoe_running_requests") == 2 ||
           brief.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }));
  server.server().shutdown(2.0);
  EXPECT_EQ(brief.get().status, 200);
  EXPECT_THAT(endless.get().text, HasSubstr("shutting_down"));
  EXPECT_EQ(server.get("/health").status, -1);
}

}  // namespace
}  // namespace smoe
