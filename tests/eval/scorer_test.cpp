// Packed scoring against the obvious way: every choice alone, as a plain causal row.
#include "smoe/eval/scorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/random.h"

namespace smoe {
namespace {

// Items with 1 to 4 choices, contexts of 1 to 13 tokens, continuations of 1 to 9.
std::vector<Request> random_requests(int64_t num_items) {
  SplitMix64 random(3);
  const auto ids = [&](uint64_t most) {
    std::vector<int32_t> result(1 + random.below(most));
    for (int32_t& id : result) id = static_cast<int32_t>(random.below(302));
    return result;
  };
  std::vector<Request> requests;
  for (int64_t item = 0; item < num_items; ++item) {
    const std::vector<int32_t> context = ids(13);
    for (uint64_t choice = random.below(4) + 1; choice > 0; --choice)
      requests.push_back({context, ids(9), item});
  }
  // Items whose contexts differ at their end only.
  for (int64_t item = num_items; item < num_items + 3; ++item) {
    std::vector<int32_t> beginning(9);
    for (int32_t& id : beginning) id = static_cast<int32_t>(random.below(302));
    for (uint64_t choice = random.below(2) + 2; choice > 0; --choice) {
      std::vector<int32_t> context = beginning;
      for (const int32_t id : ids(4)) context.push_back(id);
      requests.push_back({context, ids(6), item});
    }
  }
  return requests;
}

// Segments of one request's logical sequence, written down directly.
SegmentMap plain_segments(const Request& request, int64_t length, int64_t segment_length, RoutingMode mode,
                          SelectorPosition position) {
  if (mode == RoutingMode::kSegments) return fixed_segments(1, length, segment_length, position);
  const int64_t context = std::ssize(request.context);
  const int64_t first = std::min(length, context + segment_length);
  SegmentMap map{1, length, {{0, 0, first, context - 1}}};
  for (int64_t begin = first; begin < length; begin += segment_length) {
    Segment segment{0, begin, std::min(begin + segment_length, length), begin};
    if (position != SelectorPosition::kFirst) --segment.selector;
    if (position == SelectorPosition::kPreviousMean) segment.selector_tokens = segment_length;
    map.segments.push_back(segment);
  }
  return map;
}

RequestScore score_alone(const Model& model, const Request& request, int64_t budget, int64_t segment_length,
                         RoutingMode mode) {
  std::vector<int64_t> ids(request.context.begin(), request.context.end());
  ids.insert(ids.end(), request.continuation.begin(), request.continuation.end());
  const int64_t length = std::ssize(ids) - 1;
  ModelInput input;
  input.tokens_BT = at::tensor(ids, at::kLong).slice(0, 0, length).unsqueeze(0);
  input.segments =
      plain_segments(request, length, segment_length, mode, model.config().routing.selector_position);
  input.budget_of_row = {budget};
  const at::Tensor logits_TV = at::matmul(model.forward(input).hidden_BTD[0], model.output_weight().t());
  const at::Tensor log_prob_TV = at::log_softmax(logits_TV, -1);
  RequestScore score;
  for (int64_t t = std::ssize(request.context) - 1; t < length; ++t) {
    const int64_t id = ids[static_cast<size_t>(t + 1)];
    score.sum += log_prob_TV[t][id].item<double>();
    score.is_greedy = score.is_greedy && logits_TV[t].argmax().item<int64_t>() == id;
  }
  return score;
}

void expect_scores_of_single_rows(const Model& model, int64_t num_budgets) {
  const std::vector<Request> requests = random_requests(6);
  for (const RoutingMode mode : {RoutingMode::kSegments, RoutingMode::kLastPromptToken}) {
    for (const int64_t segment_length : {1, 3, 32}) {
      Scorer scorer(model, {64, segment_length, mode});
      for (int64_t budget = 0; budget < num_budgets; ++budget) {
        const std::vector<RequestScore> scores = scorer.score(requests, budget);
        for (size_t i = 0; i < requests.size(); ++i) {
          const RequestScore expected = score_alone(model, requests[i], budget, segment_length, mode);
          EXPECT_NEAR(scores[i].sum, expected.sum, 1e-4) << "request " << i << ", budget " << budget << ", S "
                                                         << segment_length << ", " << routing_mode_name(mode);
          EXPECT_EQ(scores[i].is_greedy, expected.is_greedy);
        }
      }
    }
  }
}

TEST(Scorer, PackedChoicesScoreLikeSingleRowsAtEveryBudgetAndSegmentLength) {
  expect_scores_of_single_rows(make_model(tiny_stepped_config()), 3);
}

TEST(Scorer, PackedChoicesScoreLikeSingleRowsAtEverySelectorPosition) {
  for (const SelectorPosition position : {SelectorPosition::kPreviousLast, SelectorPosition::kPreviousMean}) {
    SCOPED_TRACE(enum_to_name(position));
    ModelConfig config = tiny_stepped_config();
    config.routing.selector_position = position;
    expect_scores_of_single_rows(make_model(config), 2);
  }
}

TEST(Scorer, PackedChoicesScoreLikeSingleRowsForADenseModel) {
  ModelConfig config = tiny_stepped_config();
  config.architecture = Architecture::kDense;
  config.num_dense_layers = 2;
  config.num_moe_layers = 0;
  expect_scores_of_single_rows(make_model(config), 1);
}

TEST(Scorer, PackedChoicesScoreLikeSingleRowsForAVanillaMoe) {
  ModelConfig config = tiny_stepped_config();
  config.architecture = Architecture::kVanillaMoe;
  config.budgets = {{"only", 2}};
  config.size_embedding = SizeEmbedding::kNone;
  expect_scores_of_single_rows(make_model(config), 1);
}

// Items behind one of two beginnings of 12 tokens, of which whole segments are shared; and some without one.
std::vector<Request> requests_with_prefixes(int64_t shared_tokens) {
  std::vector<Request> requests = random_requests(12);
  for (Request& request : requests) {
    if (request.group % 3 == 2) continue;
    const int32_t first = request.group % 3 == 0 ? 40 : 90;
    std::vector<int32_t> context;
    for (int32_t i = 0; i < 12; ++i) context.push_back(first + i * i);
    context.insert(context.end(), request.context.begin(), request.context.end());
    request.context = context;
    request.shared_prefix = shared_tokens;
  }
  return requests;
}

void expect_scores_do_not_change_by_sharing(const ModelConfig& config, int64_t num_budgets) {
  const Model model = make_model(config);
  for (const int64_t segment_length : {1, 3, 4}) {
    for (int64_t budget = 0; budget < num_budgets; ++budget) {
      const std::vector<Request> requests = requests_with_prefixes(12);
      Scorer scorer(model, {64, segment_length, RoutingMode::kSegments});
      const std::vector<RequestScore> scores = scorer.score(requests, budget);
      EXPECT_EQ(scorer.num_computed_prefixes(), 2);
      for (size_t i = 0; i < requests.size(); ++i) {
        const RequestScore expected =
            score_alone(model, requests[i], budget, segment_length, RoutingMode::kSegments);
        EXPECT_NEAR(scores[i].sum, expected.sum, 1e-4)
            << "request " << i << ", budget " << budget << ", S " << segment_length;
        EXPECT_EQ(scores[i].is_greedy, expected.is_greedy);
      }
      scorer.score(requests, budget);
      EXPECT_EQ(scorer.num_computed_prefixes(), 2) << "prefixes are kept from call to call";
    }
  }
}

TEST(Scorer, SharedPrefixesDoNotChangeTheScoresOfAnyArchitecture) {
  ModelConfig config = tiny_stepped_config();
  expect_scores_do_not_change_by_sharing(config, 3);
  for (const SelectorPosition position : {SelectorPosition::kPreviousLast, SelectorPosition::kPreviousMean}) {
    config.routing.selector_position = position;
    expect_scores_do_not_change_by_sharing(config, 2);
  }
  config.routing.selector_position = SelectorPosition::kFirst;
  config.architecture = Architecture::kVanillaMoe;
  config.size_embedding = SizeEmbedding::kNone;
  expect_scores_do_not_change_by_sharing(config, 3);
  config.architecture = Architecture::kDense;
  config.num_dense_layers = 2;
  config.num_moe_layers = 0;
  expect_scores_do_not_change_by_sharing(config, 1);
}

TEST(Scorer, ScoresDoNotDependOnTheBatchSizeOrTheOrder) {
  const Model model = make_model(tiny_stepped_config());
  std::vector<Request> requests = random_requests(20);
  const auto one_by_one = Scorer(model, {1, 4, RoutingMode::kSegments}).score(requests, 1);
  const auto together = Scorer(model, {100000, 4, RoutingMode::kSegments}).score(requests, 1);
  std::ranges::reverse(requests);
  auto reversed = Scorer(model, {64, 4, RoutingMode::kSegments}).score(requests, 1);
  std::ranges::reverse(reversed);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_NEAR(together[i].sum, one_by_one[i].sum, 1e-4);
    EXPECT_NEAR(reversed[i].sum, one_by_one[i].sum, 1e-4);
  }
}

TEST(Scorer, BudgetsAndSegmentLengthsAndModesMatter) {
  const Model model = make_model(tiny_stepped_config());
  const std::vector<Request> requests = {{{5, 6, 7, 8, 9, 10, 11}, {12, 13, 14}, 0}};
  const auto sum = [&](int64_t budget, int64_t segment_length, RoutingMode mode) {
    return Scorer(model, {64, segment_length, mode}).score(requests, budget)[0].sum;
  };
  const double base = sum(0, 2, RoutingMode::kSegments);
  EXPECT_NE(base, sum(2, 2, RoutingMode::kSegments));
  EXPECT_NE(base, sum(0, 32, RoutingMode::kSegments));
  EXPECT_NE(base, sum(0, 2, RoutingMode::kLastPromptToken));
}

TEST(Scorer, TheGreedyContinuationIsRecognised) {
  const Model model = make_model(tiny_stepped_config());
  ModelInput input;
  input.tokens_BT = at::tensor({1, 40, 41}, at::kLong).unsqueeze(0);
  input.segments = fixed_segments(1, 3, 4);
  input.budget_of_row = {2};
  const at::Tensor last_D = model.forward(input).hidden_BTD[0][2];
  const auto best = static_cast<int32_t>(at::matmul(model.output_weight(), last_D).argmax().item<int64_t>());
  const auto scores = Scorer(model, {64, 4, RoutingMode::kSegments})
                          .score({{{1, 40, 41}, {best}, 0}, {{1, 40, 41}, {best == 0 ? 1 : best - 1}, 0}}, 2);
  EXPECT_TRUE(scores[0].is_greedy);
  EXPECT_FALSE(scores[1].is_greedy);
}

TEST(Scorer, ProgressCountsEveryRequestOnce) {
  const Model model = make_model(tiny_stepped_config());
  const std::vector<Request> requests = random_requests(9);
  int64_t done = 0;
  Scorer(model, {40, 4, RoutingMode::kSegments}).score(requests, 0, [&](int64_t n) { done += n; });
  EXPECT_EQ(done, std::ssize(requests));
}

TEST(Scorer, NonFiniteScoresStopTheRun) {
  const Model model = make_model(tiny_stepped_config());
  at::Tensor weight = model.output_weight();
  weight.fill_(std::numeric_limits<float>::infinity());
  EXPECT_THROW(Scorer(model, {64, 4, RoutingMode::kSegments}).score({{{1}, {2}, 0}}, 0), Error);
}

}  // namespace
}  // namespace smoe
