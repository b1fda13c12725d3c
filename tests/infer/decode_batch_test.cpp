#include "smoe/infer/decode_batch.h"

#include <gtest/gtest.h>

#include "infer/infer_test_support.h"

namespace smoe {
namespace {

using testing::full_forward_logits;
using testing::greedy_request;
using testing::random_prompt;
using testing::tiny_config;
using testing::tiny_model;

constexpr double kTolerance = 1e-5;

std::vector<int32_t> greedy_tokens(const at::Tensor& logits_BV) {
  const at::Tensor best_B = logits_BV.argmax(-1);
  std::vector<int32_t> tokens;
  for (int64_t row = 0; row < best_B.size(0); ++row) {
    tokens.push_back(static_cast<int32_t>(best_B[row].item<int64_t>()));
  }
  return tokens;
}

// Every budget with every segment length in both routing modes, each with a prompt of another length.
std::vector<GenerationRequest> mixed_requests(const ModelConfig& config) {
  std::vector<GenerationRequest> requests;
  int64_t length = 1;
  for (const RoutingMode mode : {RoutingMode::kSegments, RoutingMode::kLastPromptToken}) {
    for (const int64_t segment_length : {1, 3, 4, 32}) {
      for (int64_t budget = 0; budget < std::ssize(config.budgets); ++budget) {
        requests.push_back(greedy_request(random_prompt(length, length), budget, segment_length, mode, 0));
        length = length % 13 + 2;
      }
    }
  }
  return requests;
}

class DecodedLogits : public ::testing::TestWithParam<Architecture> {};
INSTANTIATE_TEST_SUITE_P(DecodeBatch, DecodedLogits,
                         ::testing::Values(Architecture::kDense, Architecture::kSteppedMoe,
                                           Architecture::kVanillaMoe),
                         [](const auto& test) { return std::string(enum_to_name(test.param)); });

class Rows {
 public:
  Rows(const Model& model, std::vector<GenerationRequest> requests)
      : model_(model), requests_(std::move(requests)), ids_(requests_.size()), batch_(model) {}

  void prefill(size_t begin, size_t end, int64_t chunk_tokens) {
    std::vector<std::vector<int32_t>> prompts;
    std::vector<DecodeRow> rows;
    for (size_t i = begin; i < end; ++i) {
      prompts.push_back(requests_[i].prompt);
      rows.push_back({requests_[i].budget,
                      {requests_[i].routing, requests_[i].segment_length, 0, requests_[i].responses,
                       model_.config().routing.selector_position}});
      row_of_batch_.push_back(i);
    }
    keep(batch_.prefill(prompts, rows, chunk_tokens), row_of_batch_.size() - (end - begin));
  }
  void decode() {
    std::vector<int32_t> tokens;
    for (const size_t row : row_of_batch_) tokens.push_back(ids_[row].back());
    keep(batch_.decode(tokens), 0);
  }
  void drop_every_second() {
    std::vector<int64_t> kept;
    std::vector<size_t> rows;
    for (size_t row = 0; row < row_of_batch_.size(); row += 2) {
      kept.push_back(static_cast<int64_t>(row));
      rows.push_back(row_of_batch_[row]);
    }
    row_of_batch_ = rows;
    batch_.keep_rows(kept);
  }
  // All logits so far against one forward over prompt and answer.
  void expect_full_forward() const {
    for (size_t row = 0; row < requests_.size(); ++row) {
      const int64_t prompt = std::ssize(requests_[row].prompt);
      const at::Tensor expected =
          full_forward_logits(model_, requests_[row], ids_[row]).narrow(0, prompt - 1, std::ssize(ids_[row]));
      const at::Tensor found = at::stack(logits_.at(row));
      EXPECT_LT((found - expected).abs().max().item<double>(), kTolerance)
          << "row " << row << " budget " << requests_[row].budget << " S " << requests_[row].segment_length;
      EXPECT_EQ(greedy_tokens(expected), ids_[row]);
    }
  }

 private:
  void keep(const at::Tensor& logits_BV, size_t first_row) {
    const std::vector<int32_t> tokens = greedy_tokens(logits_BV);
    logits_.resize(requests_.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const size_t row = row_of_batch_[first_row + i];
      ids_[row].push_back(tokens[i]);
      logits_[row].push_back(logits_BV[static_cast<int64_t>(i)].clone());
    }
  }

  const Model& model_;
  std::vector<GenerationRequest> requests_;
  std::vector<std::vector<int32_t>> ids_;
  std::vector<std::vector<at::Tensor>> logits_;
  std::vector<size_t> row_of_batch_;
  DecodeBatch batch_;
};

TEST_P(DecodedLogits, GivesTheLogitsOfTheFullForwardForMixedRows) {
  const ModelConfig config = tiny_config(GetParam());
  const Model model = tiny_model(config);
  Rows rows(model, mixed_requests(config));
  rows.prefill(0, 24, 2048);
  for (int step = 0; step < 11; ++step) rows.decode();
  rows.expect_full_forward();
}

TEST(DecodedLogits, FollowEverySelectorPosition) {
  for (const SelectorPosition position : testing::kSelectorPositions) {
    SCOPED_TRACE(enum_to_name(position));
    ModelConfig config = tiny_config(Architecture::kSteppedMoe);
    config.routing.selector_position = position;
    const Model model = tiny_model(config);
    Rows rows(model, mixed_requests(config));
    rows.prefill(0, 12, 2);
    for (int step = 0; step < 3; ++step) rows.decode();
    rows.prefill(12, 24, 5);
    for (int step = 0; step < 8; ++step) rows.decode();
    rows.drop_every_second();
    for (int step = 0; step < 5; ++step) rows.decode();
    rows.expect_full_forward();
  }
}

TEST_P(DecodedLogits, ChunksAdmissionsAndDroppedRowsChangeNothing) {
  const ModelConfig config = tiny_config(GetParam());
  const Model model = tiny_model(config);
  Rows rows(model, mixed_requests(config));
  rows.prefill(0, 12, 3);  // rows of mode `segments`: really in pieces of 3
  for (int step = 0; step < 5; ++step) rows.decode();
  rows.drop_every_second();
  rows.decode();
  rows.prefill(12, 24, 3);
  for (int step = 0; step < 9; ++step) rows.decode();
  rows.expect_full_forward();
}

// Dialogues of one to three earlier answers, at every budget and several S, among rows of the other kinds.
TEST(DecodeBatch, EarlierTurnsKeepTheExpertsThatTrainingGaveThem) {
  const ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  const Model model = tiny_model(config);
  std::vector<GenerationRequest> requests = mixed_requests(config);
  const std::vector<std::vector<ResponseSpan>> dialogues = {
      {{3, 9}}, {{1, 2}, {6, 7}}, {{2, 12}, {15, 15}, {18, 31}}};
  for (const int64_t segment_length : {1, 3, 4, 32}) {
    for (int64_t budget = 0; budget < std::ssize(config.budgets); ++budget) {
      for (const std::vector<ResponseSpan>& responses : dialogues) {
        const int64_t length = responses.back().end + 1 + budget;
        requests.push_back(greedy_request(random_prompt(length, segment_length * 10 + budget), budget,
                                          segment_length, RoutingMode::kLastPromptToken, 0));
        requests.back().responses = responses;
      }
    }
  }
  for (const int64_t chunk_tokens : {2, 5, 2048}) {
    Rows rows(model, requests);
    rows.prefill(0, requests.size(), chunk_tokens);
    for (int step = 0; step < 9; ++step) rows.decode();
    rows.expect_full_forward();
  }
}

// The map that the data code of fine-tuning builds, not one written for the test.
TEST(DecodeBatch, AgreesWithTheForwardUnderTheSegmentsOfTheTrainingData) {
  const ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  const Model model = tiny_model(config);
  for (const int64_t segment_length : {1, 4, 16}) {
    for (int64_t budget = 0; budget < std::ssize(config.budgets); ++budget) {
      const std::vector<int32_t> ids = random_prompt(40, budget + segment_length);
      const at::Tensor tokens_BT = testing::random_tokens(1, 40, 61, budget + segment_length);
      ModelInput input = testing::plain_input(tokens_BT, config, budget);
      input.segments = chat_segments({{{0, 40, {{4, 13}, {17, 22}, {26, 40}}}}}, 40, segment_length);
      const at::NoGradGuard no_gradients;
      const at::Tensor expected_TV = testing::logits_of(model, input)[0];

      DecodeBatch batch(model);
      const DecodeRow row{budget, {RoutingMode::kLastPromptToken, segment_length, 0, {{4, 13}, {17, 22}}}};
      at::Tensor found_V = batch.prefill({{ids.begin(), ids.begin() + 26}}, {row}, 2048)[0];
      for (int64_t token = 26; token < 40; ++token) {
        EXPECT_LT((found_V - expected_TV[token - 1]).abs().max().item<double>(), kTolerance) << token;
        found_V = batch.decode({ids[static_cast<size_t>(token)]})[0];
      }
      EXPECT_LT((found_V - expected_TV[39]).abs().max().item<double>(), kTolerance);
    }
  }
}

TEST(DecodeBatch, RouterOnlySizeEmbeddingAndInputIndependentMasksAgreeToo) {
  for (const MaskSource source : {MaskSource::kLearned, MaskSource::kPrefix, MaskSource::kInputIndependent}) {
    ModelConfig config = tiny_config(Architecture::kSteppedMoe);
    config.size_embedding = SizeEmbedding::kRouterOnly;
    config.routing.mask_source = source;
    config.routing.balance.kind = BalanceKind::kBias;
    const Model model = tiny_model(config);
    Rows rows(model, mixed_requests(config));
    rows.prefill(0, 24, 5);
    for (int step = 0; step < 6; ++step) rows.decode();
    rows.expect_full_forward();
  }
}

TEST(DecodeBatch, LongAnswersOutgrowTheFirstCache) {
  const ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  // float64: over hundreds of tokens float32 sums of another order differ by more than the tolerance.
  const Model model = tiny_model(config, at::kDouble);
  Rows rows(model, {greedy_request(random_prompt(7, 1), 1, 16, RoutingMode::kSegments, 0),
                    greedy_request(random_prompt(3, 2), 2, 32, RoutingMode::kLastPromptToken, 0)});
  rows.prefill(0, 2, 2048);
  for (int step = 0; step < 300; ++step) rows.decode();
  rows.expect_full_forward();
}

TEST(DecodeBatch, CountsWhatARefreshKeeps) {
  const ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  const Model model = tiny_model(config);
  const std::vector<int32_t> prompt = random_prompt(6, 3);
  DecodeBatch batch(model);
  batch.prefill({prompt}, {{1, {RoutingMode::kSegments, 4, 0}}}, 100);
  batch.decode({5});
  EXPECT_FALSE(batch.refreshes()[0]);
  batch.decode({6});
  EXPECT_FALSE(batch.refreshes()[0]);
  batch.decode({7});  // position 8
  ASSERT_TRUE(batch.refreshes()[0]);
  EXPECT_EQ(batch.refreshes()[0]->selected, 3 * 3);

  ModelInput input = testing::plain_input(at::tensor({0}, at::kLong).unsqueeze(0), config, 1);
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), {5, 6, 7});
  input.tokens_BT = at::tensor(tokens, at::TensorOptions().dtype(at::kLong)).unsqueeze(0);
  input.segments = fixed_segments(1, 9, 4);
  const at::NoGradGuard no_gradients;
  const at::Tensor mask_QLE = model.forward(input).plan->mask_QLE;
  EXPECT_EQ(batch.refreshes()[0]->kept, (mask_QLE[1] * mask_QLE[2]).sum().item<double>());
}

}  // namespace
}  // namespace smoe
