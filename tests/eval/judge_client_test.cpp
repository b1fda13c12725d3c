#include "smoe/eval/judge_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "eval/judge_connection.h"
#include "eval/judge_server.h"
#include "smoe/core/error.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using testing::completion;
using ::testing::HasSubstr;
using testing::JudgeServer;
using testing::message_of;
using ::testing::Not;
using testing::numbered_requests;

std::string last_content(const nlohmann::json& body) { return body["messages"].back()["content"]; }

void echo(int, const nlohmann::json& body, const httplib::Request&, httplib::Response& response) {
  response.set_content(completion("answer to " + last_content(body)), "application/json");
}

TEST(JudgeClient, RepliesComeInTheOrderOfTheRequestsWithTokensAndCost) {
  JudgeServer server(echo);
  const testing::TemporaryFolder folder;
  JudgeEndpoint endpoint = server.endpoint();
  endpoint.prompt_price = 10.0;
  endpoint.completion_price = 30.0;
  JudgeClient client(endpoint, {}, folder / "log.jsonl");
  const std::vector<JudgeReply> replies = client.answer(numbered_requests(20));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(replies[i].text, "answer to question " + std::to_string(i));
  EXPECT_EQ(client.usage().asked, 20);
  EXPECT_EQ(client.usage().prompt_tokens, 2000);
  EXPECT_EQ(client.usage().completion_tokens, 140);
  EXPECT_NEAR(client.usage().cost, (2000 * 10.0 + 140 * 30.0) / 1e6, 1e-12);
}

TEST(JudgeClient, SendsModelSamplingAndLogprobsInTheRequest) {
  JudgeServer server(echo);
  const testing::TemporaryFolder folder;
  JudgeSampling sampling{.temperature = 0.5, .max_tokens = 3, .top_logprobs = 5};
  sampling.max_tokens_field = "max_completion_tokens";
  JudgeClient(server.endpoint(), sampling, folder / "log.jsonl").answer(numbered_requests(1));
  EXPECT_EQ(nlohmann::json::parse(server.bodies()[0]),
            nlohmann::json({{"model", "judge-1"},
                            {"temperature", 0.5},
                            {"max_completion_tokens", 3},
                            {"logprobs", true},
                            {"top_logprobs", 5},
                            {"messages", {{{"role", "user"}, {"content", "question 0"}}}}}));
  EXPECT_EQ(server.authorizations()[0], "");
}

TEST(JudgeClient, TriesAgainAfter429And5xxAndBrokenJson) {
  JudgeServer server([](int number, const nlohmann::json& body, const httplib::Request& request,
                        httplib::Response& response) {
    if (number == 1) {
      response.status = 429;
    } else if (number == 2) {
      response.status = 503;
    } else if (number == 3) {
      response.set_content("{\"choices\": [", "application/json");
    } else {
      echo(number, body, request, response);
    }
  });
  const testing::TemporaryFolder folder;
  JudgeEndpoint endpoint = server.endpoint();
  endpoint.max_attempts = 4;
  JudgeClient client(endpoint, {}, folder / "log.jsonl");
  const std::vector<JudgeReply> replies = client.answer(numbered_requests(1));
  EXPECT_TRUE(replies[0].answered);
  EXPECT_EQ(client.usage().retries, 3);
  EXPECT_EQ(server.num_requests(), 4u);
}

TEST(JudgeClient, ObeysRetryAfterForAllThreads) {
  JudgeServer server([](int number, const nlohmann::json& body, const httplib::Request& request,
                        httplib::Response& response) {
    if (number > 1) return echo(number, body, request, response);
    response.status = 429;
    response.set_header("Retry-After", "1");
  });
  const testing::TemporaryFolder folder;
  JudgeEndpoint endpoint = server.endpoint();
  endpoint.concurrency = 1;
  JudgeClient client(endpoint, {}, folder / "log.jsonl");
  const auto start = std::chrono::steady_clock::now();
  client.answer(numbered_requests(2));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_GE(elapsed.count(), 1.0);
  EXPECT_LT(elapsed.count(), 3.0);
}

TEST(JudgeClient, ARetryAfterBeyondTheLimitFailsTheRequestAtOnce) {
  JudgeServer server([](int, const nlohmann::json&, const httplib::Request&, httplib::Response& response) {
    response.status = 429;
    response.set_header("Retry-After", "86400");
  });
  const testing::TemporaryFolder folder;
  JudgeClient client(server.endpoint(), {}, folder / "log.jsonl");
  const JudgeReply reply = client.answer(numbered_requests(1))[0];
  EXPECT_THAT(reply.problem, AllOf(HasSubstr("429"), HasSubstr("86400")));
  EXPECT_EQ(server.num_requests(), 1u);
}

TEST(JudgeClient, RetryAfterIsReadAsSecondsOrAsADate) {
  EXPECT_EQ(parse_retry_after("3"), 3.0);
  EXPECT_EQ(parse_retry_after("0.5"), 0.5);
  EXPECT_EQ(parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), 0.0);
  EXPECT_GT(parse_retry_after("Wed, 21 Oct 2099 07:28:00 GMT").value(), 1e8);
  EXPECT_EQ(parse_retry_after("soon"), std::nullopt);
  EXPECT_EQ(parse_retry_after(""), std::nullopt);
}

TEST(JudgeClient, RequestsThatKeepFailingAreReportedAndTheRestGoesOn) {
  JudgeServer server([](int number, const nlohmann::json& body, const httplib::Request& request,
                        httplib::Response& response) {
    if (last_content(body) != "question 2") return echo(number, body, request, response);
    response.status = 500;
    response.set_content("out of order", "text/plain");
  });
  const testing::TemporaryFolder folder;
  JudgeClient client(server.endpoint(), {}, folder / "log.jsonl");
  const std::vector<JudgeReply> replies = client.answer(numbered_requests(6));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(replies[i].answered, i != 2);
  EXPECT_THAT(replies[2].problem, AllOf(HasSubstr("500"), HasSubstr("3 attempts")));
  EXPECT_EQ(replies[2].text, "out of order");
  EXPECT_EQ(client.usage().failed, 1);
  EXPECT_EQ(server.num_requests(), 8u);
}

TEST(JudgeClient, ARefusedRequestIsNotRepeated) {
  JudgeServer server([](int, const nlohmann::json&, const httplib::Request&, httplib::Response& response) {
    response.status = 400;
    response.set_content("too long", "text/plain");
  });
  const testing::TemporaryFolder folder;
  JudgeClient client(server.endpoint(), {}, folder / "log.jsonl");
  EXPECT_THAT(client.answer(numbered_requests(1))[0].problem, HasSubstr("400"));
  EXPECT_EQ(server.num_requests(), 1u);
}

TEST(JudgeClient, SilenceAndTricklesEndAtTheRequestTimeout) {
  std::atomic<bool> stop = false;
  JudgeServer server([&](int number, const nlohmann::json& body, const httplib::Request& request,
                         httplib::Response& response) {
    if (number > 2) return echo(number, body, request, response);
    if (number == 1) {
      for (int i = 0; i < 100 && !stop; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return echo(number, body, request, response);
    }
    response.set_content_provider(1000, "application/json", [&](size_t, size_t, httplib::DataSink& sink) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return !stop && sink.write(" ", 1);
    });
  });
  const testing::TemporaryFolder folder;
  JudgeEndpoint endpoint = server.endpoint();
  endpoint.request_timeout_s = 0.2;
  JudgeClient client(endpoint, {}, folder / "log.jsonl");
  const auto start = std::chrono::steady_clock::now();
  const JudgeReply reply = client.answer(numbered_requests(1))[0];
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  stop = true;
  EXPECT_TRUE(reply.answered) << reply.problem;
  EXPECT_EQ(client.usage().retries, 2);
  EXPECT_LT(elapsed.count(), 3.0);
}

TEST(JudgeClient, NeverHasMoreRequestsInFlightThanAllowedAndUsesThemAll) {
  JudgeServer server([](int number, const nlohmann::json& body, const httplib::Request& request,
                        httplib::Response& response) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    echo(number, body, request, response);
  });
  const testing::TemporaryFolder folder;
  JudgeEndpoint endpoint = server.endpoint();
  endpoint.concurrency = 3;
  JudgeClient(endpoint, {}, folder / "log.jsonl").answer(numbered_requests(15));
  EXPECT_EQ(server.most_in_flight(), 3);
}

TEST(JudgeClient, ContinuesAStoppedRunWithoutRepeatingARequest) {
  const testing::TemporaryFolder folder;
  std::atomic<bool> is_down = false;
  JudgeServer server([&](int number, const nlohmann::json& body, const httplib::Request& request,
                         httplib::Response& response) {
    if (number > 7) is_down = true;
    if (is_down && number <= 8) {
      response.status = 401;
      return;
    }
    echo(number, body, request, response);
  });
  JudgeEndpoint endpoint = server.endpoint();
  endpoint.concurrency = 1;
  EXPECT_THAT(message_of<Error>(
                  [&] { JudgeClient(endpoint, {}, folder / "log.jsonl").answer(numbered_requests(12)); }),
              AllOf(HasSubstr("401"), HasSubstr("log.jsonl"), HasSubstr("key")));
  // A kill in the middle of a write leaves half a line.
  std::ofstream(folder / "log.jsonl", std::ios::app) << R"({"request": "12ab)";
  JudgeClient client(endpoint, {}, folder / "log.jsonl");
  const std::vector<JudgeReply> replies = client.answer(numbered_requests(12));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(replies[i].text, "answer to question " + std::to_string(i));
  EXPECT_EQ(client.usage().resumed, 7);
  EXPECT_EQ(client.usage().asked, 5);
  EXPECT_EQ(client.usage().prompt_tokens, 1200);
  EXPECT_EQ(server.num_requests(), 13u);

  JudgeClient again(endpoint, {}, folder / "log.jsonl");
  EXPECT_EQ(again.answer(numbered_requests(12))[11].text, "answer to question 11");
  EXPECT_EQ(server.num_requests(), 13u);
}

TEST(JudgeClient, AnotherModelOrSamplingAsksAnew) {
  JudgeServer server(echo);
  const testing::TemporaryFolder folder;
  JudgeEndpoint endpoint = server.endpoint();
  JudgeClient(endpoint, {}, folder / "log.jsonl").answer(numbered_requests(1));
  JudgeClient(endpoint, {.temperature = 1.0}, folder / "log.jsonl").answer(numbered_requests(1));
  endpoint.model = "judge-2";
  JudgeClient(endpoint, {}, folder / "log.jsonl").answer(numbered_requests(1));
  EXPECT_EQ(server.num_requests(), 3u);
}

TEST(JudgeClient, EqualRequestsAreSentOnce) {
  JudgeServer server(echo);
  const testing::TemporaryFolder folder;
  std::vector<JudgeRequest> requests = numbered_requests(2);
  requests.push_back(requests[0]);
  const auto replies = JudgeClient(server.endpoint(), {}, folder / "log.jsonl").answer(requests);
  EXPECT_EQ(replies[2].text, replies[0].text);
  EXPECT_EQ(server.num_requests(), 2u);
}

TEST(JudgeClient, ADamagedLogIsRefusedWithItsLine) {
  JudgeServer server(echo);
  const testing::TemporaryFolder folder;
  testing::write_text_file(folder / "log.jsonl", "{\"request\": \"ab\"}\nnonsense\n");
  EXPECT_THAT(message_of<DataError>([&] { JudgeClient(server.endpoint(), {}, folder / "log.jsonl"); }),
              AllOf(HasSubstr("log.jsonl:1"), HasSubstr("--out")));
}

TEST(JudgeClient, StopsWhenManyRequestsFailInARow) {
  JudgeServer server([](int, const nlohmann::json&, const httplib::Request&, httplib::Response& response) {
    response.status = 502;
  });
  const testing::TemporaryFolder folder;
  JudgeEndpoint endpoint = server.endpoint();
  endpoint.give_up_after = 4;
  EXPECT_THAT(message_of<Error>(
                  [&] { JudgeClient(endpoint, {}, folder / "log.jsonl").answer(numbered_requests(100)); }),
              AllOf(HasSubstr("4 requests failed in a row"), HasSubstr("502")));
  EXPECT_LT(server.num_requests(), 40u);
}

TEST(JudgeClient, AnUnreachableHostIsReported) {
  const testing::TemporaryFolder folder;
  JudgeEndpoint endpoint;
  endpoint.base_url = "http://127.0.0.1:1";
  endpoint.model = "judge";
  endpoint.max_attempts = 2;
  endpoint.first_delay_s = 0.001;
  const JudgeReply reply = JudgeClient(endpoint, {}, folder / "log.jsonl").answer(numbered_requests(1))[0];
  EXPECT_FALSE(reply.answered);
  EXPECT_THAT(reply.problem, AllOf(HasSubstr("no answer"), HasSubstr("2 attempts")));
}

// The key is sent, and appears neither in logs nor in files nor in messages, even if the server repeats it.
TEST(JudgeClient, TheKeyIsSentAndNeverShown) {
  const std::string key = "sk-secret-0123456789";
  ::setenv("SMOE_TEST_JUDGE_KEY", key.c_str(), 1);
  std::ostringstream log;
  const auto previous = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  spdlog::set_level(spdlog::level::trace);
  JudgeServer server(
      [&](int, const nlohmann::json& body, const httplib::Request& request, httplib::Response& response) {
        const std::string authorization = request.get_header_value("Authorization");
        if (last_content(body) == "question 1") response.status = 500;
        if (last_content(body) == "question 2") response.status = 403;
        response.set_content(response.status == -1 || response.status == 200
                                 ? completion("you sent " + authorization)
                                 : "bad key: " + authorization,
                             "application/json");
      });
  const testing::TemporaryFolder folder;
  JudgeEndpoint endpoint = server.endpoint();
  endpoint.api_key_variable = "SMOE_TEST_JUDGE_KEY";
  std::string shown;
  JudgeClient client(endpoint, {}, folder / "log.jsonl");
  for (const JudgeReply& reply : client.answer(numbered_requests(2))) shown += reply.text + reply.problem;
  shown += message_of<Error>([&] { client.answer(numbered_requests(3)); });
  spdlog::set_default_logger(previous);
  ::unsetenv("SMOE_TEST_JUDGE_KEY");

  EXPECT_EQ(server.authorizations()[0], "Bearer " + key);
  EXPECT_THAT(shown, AllOf(HasSubstr("you sent Bearer [key]"), HasSubstr("bad key: Bearer [key]"),
                           HasSubstr("403"), Not(HasSubstr(key))));
  EXPECT_THAT(log.str(), AllOf(HasSubstr("500"), Not(HasSubstr(key))));
  EXPECT_THAT(testing::file_text(folder / "log.jsonl"), AllOf(HasSubstr("you sent"), Not(HasSubstr(key))));
}

TEST(JudgeClient, UnusableEndpointsAreRefused) {
  const testing::TemporaryFolder folder;
  const auto problem = [&](JudgeEndpoint endpoint) {
    return message_of<ConfigError>([&] { JudgeClient(endpoint, {}, folder / "log.jsonl"); });
  };
  JudgeEndpoint good;
  good.base_url = "https://host.example:8443/v1/";
  good.model = "m";
  EXPECT_EQ(problem(good), "");
  for (const char* url : {"", "host.example/v1", "ftp://host", "https://", "https://host:port/v1",
                          "https://host:70000", "https://host/v1?key=1"}) {
    JudgeEndpoint endpoint = good;
    endpoint.base_url = url;
    EXPECT_THAT(problem(endpoint), HasSubstr("https://api.openai.com/v1")) << url;
  }
  JudgeEndpoint endpoint = good;
  endpoint.base_url = "https://user:password@host/v1";
  EXPECT_THAT(problem(endpoint), AllOf(HasSubstr("user name"), Not(HasSubstr("password"))));
  endpoint = good;
  endpoint.api_key_variable = "SMOE_TEST_UNSET_VARIABLE";
  EXPECT_THAT(problem(endpoint), AllOf(HasSubstr("SMOE_TEST_UNSET_VARIABLE"), HasSubstr("not set")));
  endpoint = good;
  endpoint.concurrency = 0;
  EXPECT_THAT(problem(endpoint), AllOf(HasSubstr("concurrency"), HasSubstr("0")));
  endpoint = good;
  endpoint.model = "";
  EXPECT_THAT(problem(endpoint), HasSubstr("--judge-model"));
}

TEST(BaseUrl, IsSplitIntoOriginAndPath) {
  const BaseUrl url("http://[::1]:8000/api/v1//");
  EXPECT_EQ(url.origin, "http://[::1]:8000");
  EXPECT_EQ(url.path, "/api/v1");
  EXPECT_EQ(url.host, "[::1]");
  EXPECT_FALSE(url.is_encrypted);
}

}  // namespace
}  // namespace smoe
