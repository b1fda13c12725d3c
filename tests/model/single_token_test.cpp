// Decoding one token of one row: against the forward over the whole row, and the parts it is made of.
#include "model/single_token.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "model/model_test_support.h"
#include "model/stage_list.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

class Threads {
 public:
  explicit Threads(int count) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

TEST(StageList, RunsEveryItemOnceAndEveryStageAfterTheOneBefore) {
  for (const int threads : {1, 2, 5}) {
    const Threads guard(threads);
    StageList stages;
    std::vector<std::atomic<int64_t>> counts(400);
    std::atomic<int64_t> sum = 0, num_after = 0;
    for (int64_t stage = 0; stage < 40; ++stage) {
      stages.add({10,
                  [&, stage](int64_t item) {
                    EXPECT_EQ(num_after, stage);
                    ++counts[static_cast<size_t>(stage * 10 + item)];
                    ++sum;
                  },
                  [&, stage] {
                    EXPECT_EQ(sum, (stage + 1) * 10);
                    ++num_after;
                  }});
    }
    stages.run();
    for (const auto& count : counts) EXPECT_EQ(count, 1);
    EXPECT_EQ(num_after, 40);
  }
}

TEST(StageList, TakesNumbersOfItemsFromEarlierStages) {
  StageList stages;
  std::atomic<int64_t> sum = 0;
  stages.add({1, [](int64_t) {}, [&] { stages.set_num_items(1, 7); }});
  stages.add({0, [&](int64_t item) { sum += item; }});
  stages.run();
  EXPECT_EQ(sum, 21);
}

TEST(StageList, ThrowsTheFirstExceptionAndRunsNothingAfterIt) {
  for (const bool in_after : {false, true}) {
    StageList stages;
    std::atomic<int64_t> later = 0;
    const auto fail = [] { throw DataError("broken"); };
    stages.add({20,
                [&](int64_t item) {
                  if (!in_after && item == 3) fail();
                },
                [&] {
                  if (in_after) fail();
                }});
    stages.add({5, [&](int64_t) { ++later; }});
    EXPECT_THROW(stages.run(), DataError);
    EXPECT_EQ(later, 0);
  }
}

TEST(EncodedMatrix, AddsTheProductsOfSeveralMatricesInEveryEncoding) {
  at::manual_seed(2);
  for (const int64_t rows : {1, 4, 11}) {
    EncodedWeights weights;
    std::vector<MatrixVector> terms;
    std::vector<at::Tensor> keep;
    at::Tensor expected = at::ones({rows}, at::kDouble);
    for (const auto encoding : {ExpertEncoding::kFloat32, ExpertEncoding::kBfloat16, ExpertEncoding::kInt8}) {
      at::Tensor matrix = at::randn({rows, 35});
      const at::Tensor exact = matrix.clone();
      const at::Tensor vector = at::randn({35});
      weights.encode(matrix, encoding);
      EXPECT_LT((matrix - exact).abs().max().item<double>(), 0.02);
      expected += at::mv(matrix.to(at::kDouble), vector.to(at::kDouble));
      terms.push_back({weights.matrix(matrix), vector.const_data_ptr<float>()});
      keep.insert(keep.end(), {matrix, vector});
    }
    at::Tensor sums = at::ones({rows});
    add_products(terms.data(), std::ssize(terms), sums.mutable_data_ptr<float>());
    EXPECT_TRUE(at::allclose(sums.to(at::kDouble), expected, 1e-5, 1e-4));
  }
}

TEST(EncodedMatrix, SumsWeightedRows) {
  const at::Tensor rows = at::randn({7, 21}), weights = at::randn({7}), found = at::empty({21});
  sum_weighted_rows(rows.const_data_ptr<float>(), weights.const_data_ptr<float>(), 7, 21,
                    found.mutable_data_ptr<float>());
  EXPECT_TRUE(at::allclose(found, at::mv(rows.t(), weights), 1e-5, 1e-5));
}

// The logits of every token after the first `prompt` ones, fed one at a time.
at::Tensor decode_logits(const Model& model, const at::Tensor& tokens_1T, int64_t prompt, int64_t budget) {
  const c10::InferenceMode no_gradients;
  const ModelConfig& config = model.config();
  KvCache cache(config, 1, 64, at::kCPU);
  const int64_t length = config.routing.segment_length;
  std::vector<at::Tensor> logits;
  at::Tensor mask_BLE;
  for (int64_t begin = 0; begin < tokens_1T.size(1);) {
    const int64_t count = begin == 0 ? prompt : 1;
    ModelInput input;
    input.tokens_BT = tokens_1T.narrow(1, begin, count);
    input.budget_of_row = {budget};
    input.cache = &cache;
    input.carried_mask_BLE = mask_BLE;
    input.segments = fixed_segments(1, count, length, config.routing.selector_position);
    if (begin > 0) {
      input.segments.segments = {
          testing::single_token_segment(0, begin, length, config.routing.selector_position)};
    }
    const ModelOutput output = model.forward(input);
    EXPECT_EQ(output.logits_BV.defined(), begin > 0);
    if (begin > 0) logits.push_back(output.logits_BV[0]);
    if (output.plan) mask_BLE = output.plan->mask_QLE.narrow(0, output.plan->mask_QLE.size(0) - 1, 1);
    cache.advance({count});
    begin += count;
  }
  return at::stack(logits);
}

class SingleToken : public ::testing::TestWithParam<std::tuple<Architecture, bool>> {};

TEST_P(SingleToken, GivesTheLogitsOfTheForwardOverTheWholeRow) {
  const auto [architecture, qk_norm] = GetParam();
  ModelConfig config = testing::tiny_config(architecture);
  config.qk_norm = qk_norm;
  const int64_t num_budgets = architecture == Architecture::kDense ? 1 : 3;
  for (const auto encoding : {ExpertEncoding::kFloat32, ExpertEncoding::kBfloat16, ExpertEncoding::kInt8}) {
    Model model = testing::tiny_model(config);
    model.encode_weights(encoding);
    const at::Tensor tokens = testing::random_tokens(1, 22, config.vocab_size, 9);
    for (int64_t budget = 0; budget < num_budgets; ++budget) {
      const at::NoGradGuard no_gradients;
      const at::Tensor whole = testing::logits_of(model, testing::plain_input(tokens, config, budget))[0];
      for (const int threads : {1, 3}) {
        const Threads guard(threads);
        const at::Tensor found = decode_logits(model, tokens, 6, budget);
        EXPECT_LT((found - whole.narrow(0, 6, 16)).abs().max().item<double>(), 1e-5)
            << enum_to_name(encoding) << ", budget " << budget << ", " << threads << " threads";
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, SingleToken,
                         ::testing::Combine(::testing::Values(Architecture::kDense, Architecture::kSteppedMoe,
                                                              Architecture::kVanillaMoe),
                                            ::testing::Bool()));

TEST(SingleToken, IsRoutedByTokensOfEarlierForwards) {
  for (const SelectorPosition position : testing::kSelectorPositions) {
    ModelConfig config = testing::tiny_config(Architecture::kSteppedMoe);
    config.routing.selector_position = position;
    const Model model = testing::tiny_model(config);
    const at::Tensor tokens = testing::random_tokens(1, 22, config.vocab_size, 9);
    const at::NoGradGuard no_gradients;
    const at::Tensor whole = testing::logits_of(model, testing::plain_input(tokens, config, 1))[0];
    const at::Tensor found = decode_logits(model, tokens, 6, 1);
    EXPECT_LT((found - whole.narrow(0, 6, 16)).abs().max().item<double>(), 1e-5) << enum_to_name(position);
  }
}

TEST(SingleToken, DoesNotDependOnTheNumberOfThreads) {
  ModelConfig config = testing::tiny_config(Architecture::kSteppedMoe);
  config.dim = 320;
  config.expert_dim = 150;
  config.dense_ffn_dim = 700;
  const Model model = testing::tiny_model(config);
  const at::Tensor tokens = testing::random_tokens(1, 12, config.vocab_size, 9);
  std::vector<at::Tensor> all;
  for (const int threads : {1, 2, 4}) {
    const Threads guard(threads);
    all.push_back(decode_logits(model, tokens, 3, 2));
  }
  // The prompt goes another way, whose roundings depend on the threads.
  EXPECT_LT((all[1] - all[0]).abs().max().item<double>(), 1e-5);
  EXPECT_LT((all[2] - all[0]).abs().max().item<double>(), 1e-5);
}

}  // namespace
}  // namespace smoe
