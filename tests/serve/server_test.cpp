// Answers of the server against those of the generator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "chat_test_support.h"
#include "serve/serve_test_support.h"
#include "smoe/model/checkpoint_reader.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using testing::error_text;
using testing::eventually;
using testing::expected;
using ::testing::HasSubstr;
using testing::json;
using testing::kPrompt;
using testing::question;
using testing::Reply;
using testing::RunningServer;
using testing::stepped_served;
using testing::stream_values;
using testing::streamed_text;

// One server for all tests that leave it as it was.
class ServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new RunningServer(stepped_served()); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static RunningServer& server() { return *server_; }

 private:
  static RunningServer* server_;
};
RunningServer* ServerTest::server_ = nullptr;

TEST_F(ServerTest, ListsTheDefaultAndOneModelABudget) {
  const Reply reply = server().get("/v1/models");
  ASSERT_EQ(reply.status, 200);
  std::vector<std::string> ids;
  for (const json& model : reply.body["data"]) ids.push_back(model["id"]);
  EXPECT_THAT(ids, ::testing::ElementsAre("tiny", "tiny-one", "tiny-two", "tiny-three"));
  EXPECT_EQ(reply.body["data"][2]["experts_per_layer"], 3);
  EXPECT_EQ(server().get("/v1/models/tiny-two").body["budget"], "two");
  EXPECT_EQ(server().get("/health").body["status"], "ok");
}

TEST_F(ServerTest, CompletionsAreThoseOfTheGeneratorAtEveryBudget) {
  const ServedModel served = stepped_served();
  const std::vector<std::string> names = {"tiny-one", "two", "tiny-three"};
  for (int64_t budget = 0; budget < 3; ++budget) {
    json asked = question(names[static_cast<size_t>(budget)]);
    asked["logprobs"] = 0;
    const Reply reply = server().post("/v1/completions", asked);
    ASSERT_EQ(reply.status, 200) << reply.text;
    const GenerationResult result = expected(served, kPrompt, budget, 12);
    const json& choice = reply.body["choices"][0];
    EXPECT_EQ(choice["text"], result.text);
    EXPECT_EQ(choice["finish_reason"], "length");
    ASSERT_EQ(choice["logprobs"]["token_logprobs"].size(), result.logprobs.size());
    for (size_t i = 0; i < result.logprobs.size(); ++i) {
      EXPECT_NEAR(choice["logprobs"]["token_logprobs"][i].get<double>(), result.logprobs[i], 1e-6);
    }
    EXPECT_EQ(reply.body["usage"]["prompt_tokens"], 5);
    EXPECT_EQ(reply.body["usage"]["completion_tokens"], 12);
    EXPECT_EQ(reply.body["usage"]["total_tokens"], 17);
    EXPECT_EQ(reply.body["object"], "text_completion");
  }
}

TEST_F(ServerTest, StreamedChunksTogetherAreTheWholeAnswer) {
  json asked = question();
  asked["stop"] = {" w99", "never"};
  const std::string whole = server().post("/v1/completions", asked).body["choices"][0]["text"];
  asked["stream"] = true;
  asked["stream_options"] = {{"include_usage", true}};
  const Reply reply = server().post("/v1/completions", asked);
  EXPECT_EQ(reply.headers.find("Content-Type")->second, "text/event-stream");
  const std::vector<json> values = stream_values(reply.text);
  EXPECT_EQ(streamed_text(values), whole);
  EXPECT_EQ(values.back()["usage"]["completion_tokens"], 12);
  EXPECT_TRUE(values.back()["choices"].empty());
  EXPECT_EQ(values[values.size() - 2]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(values.front()["usage"].is_null());
}

TEST_F(ServerTest, SamplingSettingsAndSeedsReachTheSampler) {
  json asked = question("tiny-two");
  asked.update({{"temperature", 1.5}, {"top_p", 0.9}, {"top_k", 20}, {"min_p", 0.01}, {"seed", 5}});
  const SamplingConfig sampling{1.5, 20, 0.9, 0.01, 5};
  EXPECT_EQ(server().post("/v1/completions", asked).body["choices"][0]["text"],
            expected(stepped_served(), kPrompt, 1, 12, sampling).text);
  asked["seed"] = 6;
  EXPECT_NE(server().post("/v1/completions", asked).body["choices"][0]["text"],
            expected(stepped_served(), kPrompt, 1, 12, sampling).text);
}

TEST_F(ServerTest, StopsAtAStopStringAndTakesTokenIds) {
  const GenerationResult result = expected(stepped_served(), kPrompt, 2, 12);
  json asked = question();
  asked["prompt"] = {3, 14, 15, 9, 26};
  asked["stop"] = testing::word_tokenizer().token(result.ids[4]);
  const json choice = server().post("/v1/completions", asked).body["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["text"], result.text.substr(0, result.text.find(asked["stop"].get<std::string>())));
}

TEST_F(ServerTest, RequestsOfSeveralBudgetsRunTogether) {
  const ServedModel served = stepped_served();
  std::vector<std::future<Reply>> replies;
  const std::vector<std::string> names = {"tiny-one", "tiny-two", "tiny-three"};
  for (size_t i = 0; i < 12; ++i) {
    json asked = question(names[i % 3], 10 + static_cast<int64_t>(i));
    asked["segment_length"] = 1 + i % 5;
    replies.push_back(
        std::async(std::launch::async, [&, asked] { return server().post("/v1/completions", asked); }));
  }
  for (size_t i = 0; i < replies.size(); ++i) {
    GenerationRequest request = testing::greedy_request(
        encode_prompt(*served.tokenizer, kPrompt, served.bos), static_cast<int64_t>(i % 3),
        1 + static_cast<int64_t>(i % 5), RoutingMode::kSegments, 10 + static_cast<int64_t>(i));
    const Reply reply = replies[i].get();
    ASSERT_EQ(reply.status, 200) << reply.text;
    EXPECT_EQ(reply.body["choices"][0]["text"],
              Generator(served.model, *served.tokenizer).generate(request).text);
  }
}

TEST_F(ServerTest, RefusesWhatItCannotReadAndNamesTheField) {
  const auto refused = [&](const std::string& field, const json& value) {
    json asked = question();
    asked[field] = value;
    const Reply reply = server().post("/v1/completions", asked);
    EXPECT_EQ(reply.status, 400) << field << reply.text;
    EXPECT_THAT(error_text(reply), HasSubstr(field));
    EXPECT_EQ(reply.body["error"]["param"], field);
    EXPECT_EQ(reply.body["error"]["type"], "invalid_request_error");
  };
  refused("temperature", "hot");
  refused("temperature", -1);
  refused("top_p", 1.5);
  refused("min_p", 2);
  refused("top_k", 1.5);
  refused("max_tokens", 0);
  refused("max_tokens", 1e30);
  refused("max_tokens", 60);
  refused("max_tokens", 5000);
  refused("stop", {1});
  refused("stop", "");
  refused("stream", "yes");
  refused("segment_length", 0);
  refused("routing", "random");
  refused("logprobs", 5);
  refused("prompt", json::array());
  refused("prompt", {"two", "prompts"});
  refused("prompt", {61});
  refused("n", 2);
  refused("best_of", 3);
  refused("echo", true);
  refused("tools", {{{"type", "function"}}});
  refused("response_format", {{"type", "json_object"}});
  refused("logit_bias", {{"5", 1}});
  refused("presence_penalty", 0.5);
  refused("repetition_penalty", 1.2);
  refused("ignore_eos", true);
  refused("guided_json", json::object());
  refused("stream_options", {{"include_usage", true}});
}

TEST_F(ServerTest, AcceptsDefaultsWrittenOutAndUnknownFields) {
  json asked = question();
  asked.update({{"n", 1},
                {"echo", false},
                {"tools", json::array()},
                {"presence_penalty", 0},
                {"repetition_penalty", 1.0},
                {"ignore_eos", false},
                {"logit_bias", nullptr}});
  asked.update(
      {{"response_format", {{"type", "text"}}}, {"logprobs", nullptr}, {"user", "me"}, {"store", true}});
  EXPECT_EQ(server().post("/v1/completions", asked).status, 200);
}

TEST_F(ServerTest, NamesWhatIsWrongWithBodiesModelsAndPaths) {
  const Reply broken = server().post_text("/v1/completions", R"({"prompt": )");
  EXPECT_EQ(broken.status, 400);
  EXPECT_THAT(error_text(broken), HasSubstr("not JSON"));
  EXPECT_EQ(server().post_text("/v1/completions", "[1]").status, 400);
  const Reply huge = server().post_text("/v1/completions", R"({"prompt": "x", "temperature": 1e999})");
  EXPECT_EQ(huge.status, 400);
  EXPECT_THAT(error_text(huge), HasSubstr("not usable JSON"));
  // What is refused is printed in the message, which would recurse as deep.
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  const Reply nested = server().post_text("/v1/completions", R"({"prompt": "x", "tools": )" + deep + "}");
  EXPECT_EQ(nested.status, 400);
  EXPECT_THAT(error_text(nested), HasSubstr("nests more than"));
  const Reply unknown = server().post("/v1/completions", question("tiny-huge"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(error_text(unknown), ::testing::AllOf(HasSubstr("tiny-huge"), HasSubstr("tiny-two")));
  EXPECT_EQ(server().post("/v1/completions", {{"model", "tiny"}}).body["error"]["param"], "prompt");
  const Reply nowhere = server().post("/v1/embeddings", question());
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_THAT(error_text(nowhere), HasSubstr("/v1/embeddings"));
  EXPECT_EQ(server().get("/v2").status, 404);
}

TEST_F(ServerTest, ChatsNeedATemplate) {
  const Reply reply =
      server().post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "hello"}}}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(error_text(reply), HasSubstr("no chat template"));
  EXPECT_EQ(reply.body["error"]["code"], "no_chat_template");
}

TEST_F(ServerTest, ALongPromptIsRefusedWithItsLength) {
  json asked = question();
  std::string prompt;
  for (int i = 0; i < 64; ++i) prompt += " w1";
  asked["prompt"] = prompt;
  const Reply reply = server().post("/v1/completions", asked);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.body["error"]["code"], "context_length_exceeded");
  EXPECT_THAT(error_text(reply), HasSubstr("64"));
}

TEST(Server, CountsWhatItDoes) {
  RunningServer server(stepped_served());
  server.post("/v1/completions", question("tiny-one", 9));
  server.post("/v1/completions", question("no such model"));
  // Responses are counted once they are sent: the client may be faster.
  const std::string refused = R"(smoe_http_responses_total{endpoint="/v1/completions",status="404"})";
  ASSERT_TRUE(eventually(
      [&] { return server.metric("smoe_request_seconds_count") == 1 && server.metric(refused) == 1; }));
  EXPECT_EQ(server.metric(R"(smoe_prompt_tokens_total{model="tiny-one"})"), 5);
  EXPECT_EQ(server.metric(R"(smoe_generated_tokens_total{model="tiny-one"})"), 9);
  EXPECT_EQ(server.metric(R"(smoe_requests_total{model="tiny-one",outcome="length"})"), 1);
  EXPECT_EQ(server.metric("smoe_first_token_seconds_count"), 1);
  // Prompt of 5, S = 4: positions 8 and 12 choose anew (8 tokens are fed after the prompt).
  EXPECT_EQ(server.metric("smoe_refreshes_total"), 2);
  EXPECT_EQ(server.metric("smoe_queue_length"), 0);
}

TEST(Server, AnswersTextWithTheSentencePieceModelOfACheckpoint) {
  ModelSource source;
  source.checkpoint = std::string(SMOE_SOURCE_DIR) + "/tests/golden/eval/tiny_llama";
  source.name = "llama";
  const ServedModel served = open_served_model(source);
  EXPECT_EQ(served.context_limit, 256);
  RunningServer server(open_served_model(source));
  const std::string prompt = "The capital of France is";
  json asked = {{"prompt", prompt}, {"max_tokens", 30}, {"temperature", 0}};
  const std::string text = expected(served, prompt, 0, 30).text;
  const Reply reply = server.post("/v1/completions", asked);
  EXPECT_EQ(reply.body["choices"][0]["text"], text) << reply.text;
  EXPECT_EQ(reply.body["model"], "llama");
  asked["stream"] = true;
  EXPECT_EQ(streamed_text(stream_values(server.post("/v1/completions", asked).text)), text);
}

// A dense model over the bytes and chat tokens of ChatML.
ServedModel chat_served(const testing::TemporaryFolder& folder) {
  ModelConfig config = testing::tiny_config(Architecture::kSteppedMoe);
  config.vocab_size = 263;
  ServedModel served = stepped_served(256);
  served.model = testing::tiny_model(config);
  served.tokenizer = load_tokenizer(testing::write_chat_tokenizer(folder.path()));
  served.renderer =
      std::make_shared<ChatRenderer>(load_chat_template(testing::template_path("chatml")), *served.tokenizer);
  return served;
}

TEST(Server, ChatsAreRenderedByTheTemplateAndRoutedByTheLastPromptToken) {
  const testing::TemporaryFolder folder;
  const ServedModel served = chat_served(folder);
  RunningServer server(chat_served(folder));
  json asked = {{"model", "tiny-two"}, {"max_completion_tokens", 20}, {"temperature", 0}, {"logprobs", true}};
  asked["messages"] = {
      {{"role", "developer"}, {"content", "Be brief."}},
      {{"role", "user"},
       {"content", {{{"type", "text"}, {"text", "Hel"}}, {{"type", "text"}, {"text", "lo"}}}}}};
  GenerationRequest request = testing::greedy_request(
      served.renderer->prompt({{ChatRole::kSystem, "Be brief."}, {ChatRole::kUser, "Hello"}}), 1,
      served.segment_length, RoutingMode::kLastPromptToken, 20);
  request.stop_ids = {testing::kImEnd, testing::kEndOfText};
  const GenerationResult result = Generator(served.model, *served.tokenizer).generate(request);
  const Reply reply = server.post("/v1/chat/completions", asked);
  ASSERT_EQ(reply.status, 200) << reply.text;
  const json& choice = reply.body["choices"][0];
  EXPECT_EQ(choice["message"]["content"], result.text);
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["logprobs"]["content"].size(), result.ids.size());
  EXPECT_EQ(reply.body["usage"]["prompt_tokens"], request.prompt.size());
  asked["stream"] = true;
  const std::vector<json> values = stream_values(server.post("/v1/chat/completions", asked).text);
  EXPECT_EQ(values.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(values.front()["object"], "chat.completion.chunk");
  EXPECT_EQ(streamed_text(values), result.text);
}

TEST(Server, ChatsWithOtherRolesOrPartsAreRefused) {
  const testing::TemporaryFolder folder;
  RunningServer server(chat_served(folder));
  const auto problem = [&](const json& messages) {
    const Reply reply = server.post("/v1/chat/completions", {{"messages", messages}});
    EXPECT_EQ(reply.status, 400) << reply.text;
    return reply.body["error"].value("param", "") + ": " + error_text(reply);
  };
  EXPECT_THAT(problem({{{"role", "tool"}, {"content", "x"}}}), HasSubstr("messages[0].role"));
  EXPECT_THAT(problem({{{"role", "user"}}}), HasSubstr("messages[0].content"));
  EXPECT_THAT(problem({{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}),
              HasSubstr("messages[0].content[0].type"));
  EXPECT_THAT(problem({{{"role", "assistant"}, {"content", "x"}}}), HasSubstr("messages"));
  EXPECT_THAT(problem("hello"), HasSubstr("messages"));
}

}  // namespace
}  // namespace smoe
