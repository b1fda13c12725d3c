// The yardstick of decoding computes what the library computes.
#include "infer/stock_decoder.h"

#include <gtest/gtest.h>

#include "model/model_test_support.h"

namespace smoe {
namespace {

class StockDecoderTest : public ::testing::TestWithParam<std::tuple<StockDecoding, SizeEmbedding>> {};

TEST_P(StockDecoderTest, GivesTheLogitsOfTheLibraryTokenByToken) {
  const auto [decoding, size_embedding] = GetParam();
  ModelConfig config = testing::tiny_config(Architecture::kSteppedMoe);
  config.size_embedding = size_embedding;
  config.qk_norm = size_embedding == SizeEmbedding::kNone;
  config.tied_embeddings = size_embedding == SizeEmbedding::kNone;
  const Model model = testing::tiny_model(config);
  const at::NoGradGuard no_gradients;
  // Three choices of experts, the last of them for one token.
  const at::Tensor tokens_BT = testing::random_tokens(1, 9, config.vocab_size, 3);
  for (int64_t budget = 0; budget < std::ssize(config.budgets); ++budget) {
    const at::Tensor expected_TV =
        testing::logits_of(model, testing::plain_input(tokens_BT, config, budget))[0];
    StockDecoder stock(model, budget, config.routing.segment_length, decoding);
    for (int64_t t = 0; t < tokens_BT.size(1); ++t) {
      const at::Tensor found_V = stock.append(static_cast<int32_t>(tokens_BT[0][t].item<int64_t>()));
      EXPECT_TRUE(at::allclose(found_V, expected_TV[t], 1e-4, 1e-4)) << "budget " << budget << " token " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllCompositions, StockDecoderTest,
                         ::testing::Combine(::testing::Values(StockDecoding::kGatheredByToken,
                                                              StockDecoding::kGathered,
                                                              StockDecoding::kLooped),
                                            ::testing::Values(SizeEmbedding::kInput, SizeEmbedding::kNone)));

TEST(StockDecoder, ExistsForTheDefaultRouterOnly) {
  ModelConfig config = testing::tiny_config(Architecture::kSteppedMoe);
  EXPECT_TRUE(StockDecoder::supports(config));
  config.routing.mask_head.kind = MaskHeadKind::kMlp;
  EXPECT_FALSE(StockDecoder::supports(config));
  config = testing::tiny_config(Architecture::kSteppedMoe);
  config.size_embedding = SizeEmbedding::kRouterOnly;
  EXPECT_FALSE(StockDecoder::supports(config));
  EXPECT_FALSE(StockDecoder::supports(testing::tiny_config(Architecture::kDense)));
}

}  // namespace
}  // namespace smoe
