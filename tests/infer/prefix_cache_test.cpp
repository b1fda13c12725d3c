// Prefixes that are computed once, and generations that go on from them.
#include "smoe/infer/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/infer_test_support.h"

namespace smoe {
namespace {

using testing::greedy_request;
using testing::random_prompt;
using testing::tiny_config;
using testing::tiny_model;
using testing::word_tokenizer;

TEST(PrefixCache, ComputesEveryPrefixOncePerBudget) {
  const Model model = tiny_model(tiny_config(Architecture::kSteppedMoe));
  PrefixCache cache(model);
  const std::vector<int32_t> tokens = random_prompt(8, 1);
  const auto first = cache.get(tokens, 0, 4);
  EXPECT_EQ(first->lengths(), std::vector<int64_t>{8});
  EXPECT_EQ(cache.get(tokens, 0, 4), first);
  EXPECT_NE(cache.get(tokens, 1, 4), first);
  EXPECT_NE(cache.get(tokens, 0, 8), first);
  EXPECT_NE(cache.get(random_prompt(8, 2), 0, 4), first);
  EXPECT_EQ(cache.get(tokens, 0, 4), first);
  EXPECT_EQ(cache.num_computed(), 4);
}

TEST(PrefixCache, ForgetsWhatWasNotUsedForTheLongestTime) {
  const ModelConfig config = tiny_config(Architecture::kDense);
  const Model model = tiny_model(config);
  const int64_t bytes_of_eight = 8 * 2 * config.num_layers() * config.num_kv_heads * config.head_dim * 4;
  PrefixCache cache(model, 2 * bytes_of_eight);
  const auto prefix = [&](int64_t seed) { return cache.get(random_prompt(8, seed), 0, 4); };
  const auto first = prefix(1);
  prefix(2);
  prefix(1);
  prefix(3);  // the second one goes
  EXPECT_EQ(prefix(1), first);
  EXPECT_EQ(cache.num_computed(), 3);
  prefix(2);
  EXPECT_EQ(cache.num_computed(), 4);
  // One alone may be larger than the limit.
  EXPECT_EQ(cache.get(random_prompt(40, 4), 0, 4)->lengths().front(), 40);
}

class SharedPrompts : public ::testing::TestWithParam<Architecture> {};
INSTANTIATE_TEST_SUITE_P(Models, SharedPrompts,
                         ::testing::Values(Architecture::kDense, Architecture::kSteppedMoe,
                                           Architecture::kVanillaMoe),
                         [](const auto& test) { return std::string(enum_to_name(test.param)); });

// Requests of two prefixes and some without one, at all budgets, more than run at a time.
std::vector<GenerationRequest> mixed_requests(bool shares) {
  std::vector<GenerationRequest> requests;
  for (int64_t i = 0; i < 24; ++i) {
    const int64_t kind = i / 4 % 3;
    std::vector<int32_t> prompt = kind < 2 ? random_prompt(12, 100 + kind) : std::vector<int32_t>{};
    const std::vector<int32_t> own = random_prompt(1 + i * 5 % 9, i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    GenerationRequest request = greedy_request(prompt, i / 12, 4, RoutingMode::kSegments, 2 + i * 7 % 11);
    if (shares && kind < 2) request.shared_prefix = kind == 0 ? 12 : 8;
    requests.push_back(std::move(request));
  }
  return requests;
}

void expect_tokens_of_whole_prompts(const ModelConfig& config) {
  const Model model = tiny_model(config);
  const testing::PieceTokenizer tokenizer = word_tokenizer();
  const auto whole = Generator(model, tokenizer).generate(mixed_requests(false));
  for (const int64_t max_rows : {1, 3, 32}) {
    Generator generator(model, tokenizer, {.max_rows = max_rows, .prefill_tokens = 40, .chunk_tokens = 4});
    const auto shared = generator.generate(mixed_requests(true));
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(shared[i].ids, whole[i].ids) << i << " of " << max_rows;
      for (size_t t = 0; t < whole[i].logprobs.size(); ++t) {
        EXPECT_NEAR(shared[i].logprobs[t], whole[i].logprobs[t], 1e-4);
      }
    }
  }
}

TEST_P(SharedPrompts, GiveTheTokensOfPromptsThatAreComputedWhole) {
  expect_tokens_of_whole_prompts(tiny_config(GetParam()));
}

TEST(SharedPrompts, RouteWhatFollowsThemByTheirOwnTokens) {
  for (const SelectorPosition position : testing::kSelectorPositions) {
    SCOPED_TRACE(enum_to_name(position));
    ModelConfig config = tiny_config(Architecture::kSteppedMoe);
    config.routing.selector_position = position;
    expect_tokens_of_whole_prompts(config);
  }
}

}  // namespace
}  // namespace smoe
