#include "api_response.h"

#include <gtest/gtest.h>

namespace smoe {
namespace {

// Tokens of the log-probabilities of an answer `ids` after `prompt`, as a client joins them.
std::string joined_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                          const std::vector<int32_t>& ids, ApiKind kind) {
  ApiRequest request;
  request.kind = kind;
  request.generation.prompt = prompt;
  request.generation.continues_text = kind == ApiKind::kCompletion;
  request.generation.with_logprobs = true;
  AnswerWriter writer(request, tokenizer);
  for (const int32_t id : ids) {
    ServeEvent event;
    event.token = id;
    event.logprob = -1.0;
    writer.add(event);
  }
  const nlohmann::json logprobs = writer.whole()["choices"][0]["logprobs"];
  std::string text;
  if (kind == ApiKind::kCompletion) {
    for (const auto& token : logprobs["tokens"]) text += token.get<std::string>();
  } else {
    for (const auto& entry : logprobs["content"]) {
      for (const auto& byte : entry["bytes"]) text += static_cast<char>(byte.get<int>());
    }
  }
  return text;
}

class AnswerWriterTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Tokenizers, AnswerWriterTest,
                         ::testing::Values("qwen2", "sentencepiece_bpe.model", "sentencepiece_unigram.model"),
                         [](const auto& test) { return std::filesystem::path(test.param).stem().string(); });

TEST_P(AnswerWriterTest, TokensOfLogprobsAreTheTextTogether) {
  const auto tokenizer =
      load_tokenizer(std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/tokenizers" / GetParam());
  const std::vector<int32_t> prompt = tokenizer->encode("Once upon a");
  const std::vector<int32_t> whole = tokenizer->encode("Once upon a time  there was a wide road");
  ASSERT_TRUE(std::equal(prompt.begin(), prompt.end(), whole.begin()));
  const std::vector<int32_t> answer(whole.begin() + std::ssize(prompt), whole.end());
  EXPECT_EQ(joined_tokens(*tokenizer, prompt, answer, ApiKind::kCompletion), " time  there was a wide road");
  EXPECT_EQ(joined_tokens(*tokenizer, {}, whole, ApiKind::kChat), "Once upon a time  there was a wide road");
}

}  // namespace
}  // namespace smoe
