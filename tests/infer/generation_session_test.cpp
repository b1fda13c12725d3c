#include "smoe/infer/generation_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/infer_test_support.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

using testing::full_forward_logits;
using testing::greedy_request;
using ::testing::HasSubstr;
using testing::random_prompt;
using testing::tiny_config;
using testing::tiny_model;
using testing::word_tokenizer;

template <class E>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

class GenerationTest : public ::testing::Test {
 protected:
  const ModelConfig config_ = tiny_config(Architecture::kSteppedMoe);
  const Model model_ = tiny_model(config_);
  const testing::PieceTokenizer tokenizer_ = word_tokenizer();

  GenerationRequest greedy(int64_t length = 5, int64_t max_new_tokens = 12) const {
    return greedy_request(random_prompt(length, length), 1, 4, RoutingMode::kSegments, max_new_tokens);
  }
  GenerationResult generate(GenerationRequest request) const {
    return Generator(model_, tokenizer_).generate(std::move(request));
  }
};

class GeneratedTokens : public ::testing::TestWithParam<Architecture> {};
INSTANTIATE_TEST_SUITE_P(Generator, GeneratedTokens,
                         ::testing::Values(Architecture::kDense, Architecture::kSteppedMoe,
                                           Architecture::kVanillaMoe),
                         [](const auto& test) { return std::string(enum_to_name(test.param)); });

TEST_P(GeneratedTokens, GreedyTokensAndLogprobsAreThoseOfTheFullForward) {
  const ModelConfig config = tiny_config(GetParam());
  const Model model = tiny_model(config);
  const testing::PieceTokenizer tokenizer = word_tokenizer();
  std::vector<GenerationRequest> requests;
  for (const RoutingMode mode : {RoutingMode::kSegments, RoutingMode::kLastPromptToken}) {
    for (const int64_t segment_length : {1, 4, 7, 16}) {
      for (int64_t budget = 0; budget < 3; ++budget) {
        const int64_t index = std::ssize(requests);
        requests.push_back(greedy_request(random_prompt(1 + index * 5 % 13, index), budget, segment_length,
                                          mode, 3 + index * 7 % 11));
      }
    }
  }
  // Few rows and short pieces, so that requests wait, come and go.
  Generator generator(model, tokenizer, {.max_rows = 5, .prefill_tokens = 30, .chunk_tokens = 4});
  const std::vector<GenerationResult> results = generator.generate(requests);
  ASSERT_EQ(results.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<int32_t>& ids = results[i].ids;
    ASSERT_EQ(std::ssize(ids), requests[i].max_new_tokens);
    const at::Tensor logits_TV = full_forward_logits(model, requests[i], ids)
                                     .narrow(0, std::ssize(requests[i].prompt) - 1, std::ssize(ids));
    const at::Tensor logprob_TV = logits_TV.log_softmax(-1);
    for (size_t t = 0; t < ids.size(); ++t) {
      EXPECT_EQ(ids[t], logits_TV[static_cast<int64_t>(t)].argmax().item<int64_t>()) << i << " " << t;
      EXPECT_NEAR(results[i].logprobs[t], logprob_TV[static_cast<int64_t>(t)][ids[t]].item<double>(), 1e-5);
    }
    EXPECT_EQ(results[i].finish, FinishReason::kLength);
    EXPECT_EQ(results[i].text, tokenizer.decode(ids, false));
  }
}

TEST_P(GeneratedTokens, SampledTokensDoNotDependOnTheBatch) {
  const ModelConfig config = tiny_config(GetParam());
  const Model model = tiny_model(config);
  const testing::PieceTokenizer tokenizer = word_tokenizer();
  std::vector<GenerationRequest> requests;
  for (int64_t i = 0; i < 9; ++i) {
    requests.push_back(greedy_request(random_prompt(1 + i * 3 % 8, 50 + i), i % 3, 1 + i % 5,
                                      i % 2 == 0 ? RoutingMode::kSegments : RoutingMode::kLastPromptToken,
                                      8 + i % 4));
    requests.back().sampling = {1.2, i % 3 == 0 ? 0 : 20, i % 2 == 0 ? 1.0 : 0.9, 0.02,
                                static_cast<uint64_t>(i)};
  }
  const std::vector<GenerationResult> together = Generator(model, tokenizer).generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].ids, Generator(model, tokenizer).generate(requests[i]).ids) << i;
  }
}

TEST_F(GenerationTest, SeedsAloneDecideWhatIsSampled) {
  GenerationRequest request = greedy();
  request.sampling.temperature = 1.5;
  const std::vector<int32_t> first = generate(request).ids;
  EXPECT_EQ(generate(request).ids, first);
  request.sampling.seed = 1;
  EXPECT_NE(generate(request).ids, first);
}

TEST_F(GenerationTest, AnEndingBeforeAStopIdIsNoPartOfTheText) {
  GenerationRequest request = greedy();
  request.sampling.temperature = 1.5;  // greedy answers repeat themselves
  const std::vector<int32_t> ids = generate(request).ids;
  // The first token after the second that has not come before.
  size_t end = 2;
  while (std::find(ids.begin(), ids.begin() + static_cast<int64_t>(end), ids[end]) !=
         ids.begin() + static_cast<int64_t>(end)) {
    ASSERT_LT(++end, ids.size());
  }
  const std::vector<int32_t> answer(ids.begin(), ids.begin() + static_cast<int64_t>(end) - 1);
  request.ending = tokenizer_.token(ids[end - 1]);
  std::string streamed;
  request.on_token = [&](const TokenEvent& event) {
    streamed += event.text;
    return true;
  };
  EXPECT_EQ(generate(request).text, tokenizer_.decode(ids, false)) << "no stop id: the ending is text";
  request.stop_ids = {ids[end]};
  streamed.clear();
  EXPECT_EQ(generate(request).text, tokenizer_.decode(answer, false));
  EXPECT_EQ(streamed, tokenizer_.decode(answer, false));
}

TEST_F(GenerationTest, StopsAtTheFirstStopStringEvenInsideAToken) {
  const GenerationResult plain = generate(greedy());
  GenerationRequest request = greedy();
  // From the end of the third word into the fourth one.
  const std::string third = tokenizer_.token(plain.ids[2]);
  const std::string fourth = tokenizer_.token(plain.ids[3]);
  request.stops = {"never", third.substr(third.size() - 1) + fourth.substr(0, 2)};
  const GenerationResult stopped = generate(request);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.stop, request.stops[1]);
  EXPECT_EQ(stopped.text, plain.text.substr(0, plain.text.find(request.stops[1])));
  ASSERT_LE(stopped.ids.size(), 4u);
  EXPECT_TRUE(std::equal(stopped.ids.begin(), stopped.ids.end(), plain.ids.begin()));
}

TEST_F(GenerationTest, StopIdsEndTheAnswerWithoutBeingPartOfIt) {
  const GenerationResult plain = generate(greedy());
  GenerationRequest request = greedy();
  request.stop_ids = {plain.ids[4]};
  const GenerationResult stopped = generate(request);
  EXPECT_EQ(stopped.finish, FinishReason::kEos);
  EXPECT_EQ(stopped.stop_id, plain.ids[4]);
  const auto first = std::ranges::find(plain.ids, plain.ids[4]);
  EXPECT_EQ(stopped.ids, std::vector<int32_t>(plain.ids.begin(), first));
}

TEST_F(GenerationTest, EndsAtMaxNewTokensAndAtTheContextLimit) {
  EXPECT_EQ(generate(greedy(5, 1)).ids.size(), 1u);
  GenerationRequest request = greedy(5, 100);
  request.context_limit = 9;
  const GenerationResult result = generate(request);
  EXPECT_EQ(result.ids.size(), 4u);
  EXPECT_EQ(result.finish, FinishReason::kLength);
  request.context_limit = 6;
  EXPECT_EQ(generate(request).ids.size(), 1u);
}

TEST_F(GenerationTest, StreamsEveryTokenAndEndsWithOneFinish) {
  GenerationRequest request = greedy();
  request.stops = {tokenizer_.token(generate(greedy()).ids[6]) + " no"};
  std::string text;
  std::vector<int32_t> ids;
  int finishes = 0;
  request.on_token = [&](const TokenEvent& event) {
    text += event.text;
    if (event.token) ids.push_back(*event.token);
    EXPECT_TRUE(event.logprob.has_value());
    finishes += event.finish ? 1 : 0;
    return true;
  };
  const GenerationResult result = generate(request);
  EXPECT_EQ(text, result.text);
  EXPECT_EQ(ids, result.ids);
  EXPECT_EQ(finishes, 1);
}

TEST_F(GenerationTest, ACallbackThatReturnsFalseCancelsItsRequestOnly) {
  const GenerationResult plain = generate(greedy());
  GenerationRequest cancelled = greedy();
  cancelled.on_token = [count = 0](const TokenEvent&) mutable { return ++count < 3; };
  Generator generator(model_, tokenizer_);
  const std::vector<GenerationResult> results = generator.generate({cancelled, greedy()});
  EXPECT_EQ(results[0].finish, FinishReason::kCancelled);
  EXPECT_EQ(results[0].ids, std::vector<int32_t>(plain.ids.begin(), plain.ids.begin() + 3));
  EXPECT_EQ(results[1].ids, plain.ids);
}

TEST_F(GenerationTest, RunningAndWaitingRequestsCanBeCancelled) {
  GenerationSession session(model_, tokenizer_, {.max_rows = 1});
  const int64_t running = session.add(greedy());
  const int64_t waiting = session.add(greedy());
  const int64_t last = session.add(greedy());
  EXPECT_TRUE(session.step());
  EXPECT_EQ(session.num_running(), 1);
  EXPECT_EQ(session.num_waiting(), 2);
  session.cancel(waiting);
  session.cancel(running);
  session.cancel(12345);
  while (session.step()) {
  }
  const std::vector<GenerationResult> results = session.take_finished();
  ASSERT_EQ(results.size(), 3u);
  for (const GenerationResult& result : results) {
    EXPECT_EQ(result.finish == FinishReason::kCancelled, result.request != last);
    EXPECT_EQ(result.ids.empty(), result.request == waiting);
  }
  EXPECT_TRUE(session.take_finished().empty());
}

TEST_F(GenerationTest, RequestsAddedWhileOthersRunGetTheSameTokens) {
  const GenerationResult alone = generate(greedy(9));
  GenerationSession session(model_, tokenizer_);
  session.add(greedy(4));
  for (int i = 0; i < 3; ++i) session.step();
  const int64_t late = session.add(greedy(9));
  while (session.step()) {
  }
  for (const GenerationResult& result : session.take_finished()) {
    if (result.request == late) {
      EXPECT_EQ(result.ids, alone.ids);
    }
  }
}

TEST_F(GenerationTest, StatisticsCountTokensAndRefreshes) {
  Generator generator(model_, tokenizer_);
  const GenerationResult result = generator.generate(greedy(5, 12));
  EXPECT_EQ(result.stats.prompt_tokens, 5);
  EXPECT_EQ(result.stats.new_tokens, 12);
  EXPECT_EQ(result.stats.decode_tokens, 11);
  EXPECT_EQ(result.stats.refreshes, 2);  // positions 8 and 12 of the 16 that are fed
  EXPECT_EQ(result.stats.selected_experts, 2 * 3 * 3);
  EXPECT_LE(result.stats.kept_share(), 1.0);
  EXPECT_GT(result.stats.decode_tokens_per_s(), 0.0);
  EXPECT_EQ(generator.stats().refreshes, 2);
  EXPECT_EQ(generator.stats().new_tokens, 12);
}

TEST_F(GenerationTest, IdsBeyondTheTokenizerAreNeverChosen) {
  const testing::PieceTokenizer small = word_tokenizer(7);
  GenerationRequest request = greedy_request({1, 2, 3}, 0, 4, RoutingMode::kSegments, 20);
  for (const int32_t id : Generator(model_, small).generate(request).ids) EXPECT_LT(id, 7);
}

TEST_F(GenerationTest, RefusesRequestsThatCannotBeAnswered) {
  GenerationSession session(model_, tokenizer_);
  const auto add = [&](const std::function<void(GenerationRequest&)>& change) {
    GenerationRequest request = greedy();
    change(request);
    session.add(std::move(request));
  };
  EXPECT_THAT(error_of<DataError>([&] { add([](auto& request) { request.prompt.clear(); }); }),
              HasSubstr("no tokens"));
  EXPECT_THAT(error_of<DataError>([&] { add([](auto& request) { request.prompt[1] = 61; }); }),
              AllOf(HasSubstr("token 1"), HasSubstr("61"), HasSubstr("0 to 60")));
  EXPECT_THAT(error_of<DataError>([&] { add([](auto& request) { request.context_limit = 5; }); }),
              AllOf(HasSubstr("5 tokens"), HasSubstr("4 at most"), HasSubstr("shorten the prompt")));
  EXPECT_THAT(error_of<ConfigError>([&] { add([](auto& request) { request.budget = 3; }); }),
              HasSubstr("3 budgets"));
  EXPECT_THROW(add([](auto& request) { request.segment_length = 0; }), ConfigError);
  EXPECT_THROW(add([](auto& request) { request.max_new_tokens = 0; }), ConfigError);
  EXPECT_THROW(add([](auto& request) { request.sampling.top_p = 0; }), ConfigError);
  EXPECT_THROW(add([](auto& request) { request.stops = {""}; }), ConfigError);
  EXPECT_EQ(session.num_waiting(), 0);
}

}  // namespace
}  // namespace smoe
