// Tokens after a prefix that is kept as keys and values, against the whole rows.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "model/model_test_support.h"

namespace smoe {
namespace {

using testing::logits_of;
using testing::plain_input;
using testing::random_tokens;
using testing::tiny_config;
using testing::tiny_model;

constexpr int64_t kPrefix = 8;  // two whole segments
constexpr int64_t kOwn = 6;
constexpr int64_t kRows = 3;

class SharedPrefix : public ::testing::TestWithParam<Architecture> {
 protected:
  KvCache cache_of(const at::Tensor& prefix_1P, int64_t budget) const {
    KvCache cache(config_, 1, kPrefix, at::kCPU, at::kDouble);
    ModelInput input = plain_input(prefix_1P, config_, budget);
    input.cache = &cache;
    model_.forward(input);
    cache.advance({kPrefix});
    return cache;
  }

  // Feeds own tokens [begin, begin + count), which begin a segment or belong to one alone.
  at::Tensor feed(KvCache& rows, int64_t begin, int64_t count) const {
    ModelInput input = plain_input(own_.narrow(1, begin, count).contiguous(), config_, 0);
    input.cache = &rows;
    const at::Tensor logits = logits_of(model_, input);
    rows.advance(std::vector<int64_t>(static_cast<size_t>(kRows), count));
    return logits;
  }

  ModelConfig config_ = tiny_config(GetParam());
  Model model_ = tiny_model(config_, at::kDouble);
  at::Tensor prefix_ = random_tokens(1, kPrefix, config_.vocab_size, 1);
  at::Tensor own_ = random_tokens(kRows, kOwn, config_.vocab_size, 2);
  at::Tensor whole_ = at::cat({prefix_.expand({kRows, kPrefix}), own_}, 1);
  at::NoGradGuard no_gradients_;
};
INSTANTIATE_TEST_SUITE_P(Models, SharedPrefix,
                         ::testing::Values(Architecture::kDense, Architecture::kSteppedMoe,
                                           Architecture::kVanillaMoe),
                         [](const auto& test) { return std::string(enum_to_name(test.param)); });

TEST_P(SharedPrefix, GivesTheLogitsOfWholeRowsAtEveryBudget) {
  for (const int64_t budget : {0, 1, 2}) {
    const KvCache cache = cache_of(prefix_, budget);
    ModelInput input = plain_input(own_, config_, budget);
    input.shared_prefix = &cache;
    const at::Tensor expected =
        logits_of(model_, plain_input(whole_, config_, budget)).narrow(1, kPrefix, kOwn);
    EXPECT_TRUE(at::allclose(logits_of(model_, input), expected, 1e-10, 1e-10));
    EXPECT_EQ(cache.lengths().front(), kPrefix);
  }
}

TEST_P(SharedPrefix, LeavesTheMaskToTheTokensAfterIt) {
  // Two branches of three tokens: the second sees the prefix and itself, and stands where the first one does.
  at::Tensor allowed = at::ones({kRows, kOwn, kOwn}, at::kBool).tril();
  allowed.narrow(1, 3, 3).narrow(2, 0, 3).fill_(false);
  const KvCache cache = cache_of(prefix_, 1);
  ModelInput input = plain_input(own_, config_, 1);
  input.shared_prefix = &cache;
  input.attention_BTT = allowed;
  input.positions_BT = at::tensor({8, 9, 10, 8, 9, 10}, at::kLong).expand({kRows, kOwn});
  input.segments = {kRows, kOwn, {}};
  for (int64_t row = 0; row < kRows; ++row) {
    input.segments.segments.push_back({row, 0, 3, 0});
    input.segments.segments.push_back({row, 3, 6, 3});
  }
  const at::Tensor together = logits_of(model_, input);
  for (const int64_t begin : {0, 3}) {
    const at::Tensor alone =
        at::cat({prefix_.expand({kRows, kPrefix}), own_.narrow(1, begin, 3)}, 1).contiguous();
    const at::Tensor expected = logits_of(model_, plain_input(alone, config_, 1)).narrow(1, kPrefix, 3);
    EXPECT_TRUE(at::allclose(together.narrow(1, begin, 3), expected, 1e-10, 1e-10)) << begin;
  }
}

TEST_P(SharedPrefix, StandsBeforeTheRowsOfACache) {
  auto prefix = std::make_shared<const KvCache>(cache_of(prefix_, 0));
  KvCache rows(config_, kRows, kPrefix + kOwn, at::kCPU, at::kDouble, prefix);
  const at::Tensor expected = logits_of(model_, plain_input(whole_, config_, 0)).narrow(1, kPrefix, kOwn);
  EXPECT_TRUE(at::allclose(feed(rows, 0, 4), expected.narrow(1, 0, 4), 1e-10, 1e-10));
  EXPECT_TRUE(at::allclose(feed(rows, 4, 1), expected.narrow(1, 4, 1), 1e-10, 1e-10));
  EXPECT_EQ(rows.lengths().front(), kPrefix + 5);
}

TEST_P(SharedPrefix, BecomesAPartOfRowsThatMeetOtherRows) {
  auto prefix = std::make_shared<const KvCache>(cache_of(prefix_, 0));
  KvCache rows(config_, kRows, kPrefix + kOwn, at::kCPU, at::kDouble, prefix);
  feed(rows, 0, 4);
  KvCache others(config_, kRows, 40, at::kCPU, at::kDouble);
  const KvCache both = KvCache::concatenate(std::move(rows), std::move(others));
  EXPECT_EQ(both.prefix(), nullptr);
  EXPECT_EQ(both.lengths(), (std::vector<int64_t>{12, 12, 12, 0, 0, 0}));
  EXPECT_EQ(both.capacity(), 40);
  KvCache copied = both.select_rows({0, 1, 2});
  const at::Tensor expected = logits_of(model_, plain_input(whole_, config_, 0)).narrow(1, kPrefix + 4, 2);
  EXPECT_TRUE(at::allclose(feed(copied, 4, 2), expected, 1e-10, 1e-10));
}

}  // namespace
}  // namespace smoe
