#include "smoe/model/model.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "model/model_test_support.h"
#include "smoe/model/layers.h"

namespace smoe {
namespace {

using testing::logits_of;
using testing::plain_input;
using testing::random_tokens;
using testing::tiny_config;
using testing::tiny_model;

constexpr int64_t kTokens = 14;  // three segments of 4 and a ragged one of 2

class EveryArchitecture : public ::testing::TestWithParam<Architecture> {};
INSTANTIATE_TEST_SUITE_P(Models, EveryArchitecture,
                         ::testing::Values(Architecture::kDense, Architecture::kSteppedMoe,
                                           Architecture::kVanillaMoe),
                         [](const auto& test) { return std::string(enum_to_name(test.param)); });

TEST_P(EveryArchitecture, NeverLooksAhead) {
  const ModelConfig config = tiny_config(GetParam());
  const Model model = tiny_model(config, at::kDouble);
  const at::Tensor tokens = random_tokens(1, kTokens, config.vocab_size, 1);
  const at::NoGradGuard no_grad;
  const at::Tensor before = logits_of(model, plain_input(tokens, config, 0));
  for (int64_t changed = 0; changed < kTokens; ++changed) {
    at::Tensor altered = tokens.clone();
    altered[0][changed] = (altered[0][changed] + 1) % config.vocab_size;
    const at::Tensor after = logits_of(model, plain_input(altered, config, 0));
    EXPECT_TRUE(at::allclose(after.narrow(1, 0, changed), before.narrow(1, 0, changed), 0, 1e-12)) << changed;
    EXPECT_FALSE(at::allclose(after.select(1, changed), before.select(1, changed))) << changed;
  }
}

TEST_P(EveryArchitecture, RowsDoNotInfluenceEachOther) {
  const ModelConfig config = tiny_config(GetParam());
  const Model model = tiny_model(config, at::kDouble);
  const at::Tensor tokens = random_tokens(3, kTokens, config.vocab_size, 2);
  const at::NoGradGuard no_grad;
  const at::Tensor together = logits_of(model, plain_input(tokens, config, 1));
  for (int64_t row = 0; row < 3; ++row) {
    const at::Tensor alone = logits_of(model, plain_input(tokens.narrow(0, row, 1), config, 1));
    EXPECT_TRUE(at::allclose(alone[0], together[row], 1e-10, 1e-10));
  }
}

TEST_P(EveryArchitecture, PackedDocumentsEqualSeparateRows) {
  const ModelConfig config = tiny_config(GetParam());
  const Model model = tiny_model(config, at::kDouble);
  const at::Tensor first = random_tokens(1, 6, config.vocab_size, 3);
  const at::Tensor second = random_tokens(1, 8, config.vocab_size, 4);
  const at::Tensor documents = at::cat({at::zeros({1, 6}, at::kLong), at::ones({1, 8}, at::kLong)}, 1);
  ModelInput packed = plain_input(at::cat({first, second}, 1), config, 1);
  packed.positions_BT = at::cat({at::arange(6, at::kLong), at::arange(8, at::kLong)}).view({1, 14});
  packed.attention_BTT = document_causal_mask(documents);
  packed.segments = fixed_segments(documents, config.routing.segment_length);
  const at::NoGradGuard no_grad;
  const at::Tensor expected = at::cat(
      {logits_of(model, plain_input(first, config, 1)), logits_of(model, plain_input(second, config, 1))}, 1);
  EXPECT_TRUE(at::allclose(logits_of(model, packed), expected, 1e-10, 1e-10));
}

TEST_P(EveryArchitecture, ParametersHaveUniqueNamesAndGetGradients) {
  const ModelConfig config = tiny_config(GetParam());
  const Model model = tiny_model(config);
  logits_of(model, plain_input(random_tokens(4, kTokens, config.vocab_size, 5), config, 2))
      .square()
      .mean()
      .backward();
  std::set<std::string> names;
  for (const NamedParameter& parameter : model.parameters()) {
    EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
    EXPECT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
    EXPECT_GT(parameter.tensor.grad().abs().sum().item<double>(), 0.0) << parameter.name;
  }
}

TEST(SteppedModel, MixedBudgetsInOneBatchEqualOneAtATime) {
  const ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  const Model model = tiny_model(config, at::kDouble);
  const at::Tensor tokens = random_tokens(1, kTokens, config.vocab_size, 6);
  ModelInput tiled = plain_input(tokens.repeat({3, 1}), config, 0);
  tiled.budget_of_row = {0, 1, 2};
  const at::NoGradGuard no_grad;
  const at::Tensor together = logits_of(model, tiled);
  for (int64_t budget = 0; budget < 3; ++budget) {
    EXPECT_TRUE(at::allclose(together[budget], logits_of(model, plain_input(tokens, config, budget))[0],
                             1e-10, 1e-10));
  }
  EXPECT_FALSE(at::allclose(together[0], together[2]));
}

TEST(SteppedModel, EverySegmentUsesExactlyItsBudget) {
  const ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  const Model model = tiny_model(config);
  ModelInput input = plain_input(random_tokens(3, kTokens, config.vocab_size, 7), config, 0);
  input.budget_of_row = {2, 0, 1};
  const RoutingPlan plan = *model.forward(input).plan;
  const at::Tensor ones_QL = plan.mask_QLE.sum(-1);
  for (size_t segment = 0; segment < input.segments.segments.size(); ++segment) {
    const int64_t budget = input.budget_of_row[static_cast<size_t>(input.segments.segments[segment].row)];
    const double k = static_cast<double>(config.budgets[static_cast<size_t>(budget)].experts_per_layer);
    EXPECT_TRUE((ones_QL[static_cast<int64_t>(segment)] == k).all().item<bool>());
  }
}

// With the plan fixed (prefix masks) the loss is smooth, so that autograd can be checked end to end.
TEST(SteppedModel, GradientsAgreeWithFiniteDifferences) {
  ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  config.routing.mask_source = MaskSource::kPrefix;
  const Model model = tiny_model(config, at::kDouble);
  const ModelInput input = plain_input(random_tokens(2, 9, config.vocab_size, 8), config, 1);
  const auto loss = [&] { return at::sin(logits_of(model, input)).mean(); };
  loss().backward();
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.name.starts_with("mask_generator")) {
      continue;
    }
    at::Tensor flat = parameter.tensor.view(-1);
    const int64_t index = flat.numel() / 3;
    const double original = flat[index].item<double>();
    const double step = 1e-5;
    flat[index] = original + step;
    const double plus = loss().item<double>();
    flat[index] = original - step;
    const double minus = loss().item<double>();
    flat[index] = original;
    EXPECT_NEAR(parameter.tensor.grad().view(-1)[index].item<double>(), (plus - minus) / (2 * step), 1e-7)
        << parameter.name;
  }
}

TEST(SteppedModel, MasksAreNestedOverBudgetsWithoutSizeEmbedding) {
  ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  config.size_embedding = SizeEmbedding::kNone;
  const Model model = tiny_model(config);
  const at::Tensor tokens = random_tokens(2, kTokens, config.vocab_size, 9);
  const at::NoGradGuard no_grad;
  const at::Tensor small = model.forward(plain_input(tokens, config, 0)).plan->mask_QLE;
  const at::Tensor large = model.forward(plain_input(tokens, config, 2)).plan->mask_QLE;
  EXPECT_TRUE((small <= large).all().item<bool>());
}

TEST(SteppedModel, DetachedRouterSendsNoGradientToTheBackbone) {
  ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  const at::Tensor tokens = random_tokens(2, kTokens, config.vocab_size, 10);
  for (const double scale : {0.0, 1.0}) {
    config.routing.backbone_gradient_scale = scale;
    const Model model = tiny_model(config);
    // The logits alone as the loss: only the router's path leads back.
    model.forward(plain_input(tokens, config, 1)).plan->logits_QLE.square().sum().backward();
    const at::Tensor gradient = model.parameters().front().tensor.grad();
    EXPECT_EQ(gradient.defined() && gradient.abs().sum().item<double>() > 0, scale != 0.0);
  }
}

TEST(SteppedModel, InputIndependentMasksAreOneForAllInputs) {
  ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  config.routing.mask_source = MaskSource::kInputIndependent;
  const Model model = tiny_model(config);
  const at::Tensor mask =
      model.forward(plain_input(random_tokens(3, kTokens, config.vocab_size, 11), config, 1)).plan->mask_QLE;
  EXPECT_TRUE(at::equal(mask, mask.narrow(0, 0, 1).expand_as(mask)));
}

TEST(SteppedModel, RouterOnlySizeEmbeddingLeavesTheBackboneShared) {
  ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  config.size_embedding = SizeEmbedding::kRouterOnly;
  config.budgets = {{"low", 8}, {"high", 8}};
  // Every expert is on at both budgets, so that only a size embedding at the input could tell them apart.
  config.budgets[0].experts_per_layer = 8;
  const Model model = tiny_model(config);
  const at::Tensor tokens = random_tokens(1, kTokens, config.vocab_size, 12);
  const at::NoGradGuard no_grad;
  const ModelOutput low = model.forward(plain_input(tokens, config, 0));
  const ModelOutput high = model.forward(plain_input(tokens, config, 1));
  EXPECT_TRUE(at::equal(low.hidden_BTD, high.hidden_BTD));
  EXPECT_FALSE(at::equal(low.plan->logits_QLE, high.plan->logits_QLE));
}

TEST(SteppedModel, ContinuesFromGivenDenseStatesWithTheSameBits) {
  for (const SizeEmbedding kind : {SizeEmbedding::kNone, SizeEmbedding::kRouterOnly, SizeEmbedding::kInput}) {
    ModelConfig config = tiny_config(Architecture::kSteppedMoe);
    config.size_embedding = kind;
    const Model model = tiny_model(config);
    const at::Tensor tokens = random_tokens(2, kTokens, config.vocab_size, 12);
    const at::NoGradGuard no_grad;
    const at::Tensor states_of_first = model.dense_states(plain_input(tokens, config, 0));
    ModelInput input = plain_input(tokens, config, 1);
    const at::Tensor expected = model.forward(input).hidden_BTD;
    input.dense_states_BTD = states_of_first;
    EXPECT_EQ(at::equal(model.forward(input).hidden_BTD, expected), dense_states_are_shared(config));
  }
}

TEST(SteppedModel, SelectedAndAllMaskGradientsGiveTheSameForward) {
  ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  const at::Tensor tokens = random_tokens(2, kTokens, config.vocab_size, 13);
  const Model sparse = tiny_model(config, at::kDouble);
  config.routing.mask_gradient = MaskGradient::kAll;
  const Model dense = tiny_model(config, at::kDouble);
  EXPECT_TRUE(at::allclose(logits_of(sparse, plain_input(tokens, config, 1)),
                           logits_of(dense, plain_input(tokens, config, 1)), 1e-10, 1e-10));
}

// Feeds rows of different lengths token by token behind a right-padded prompt, refreshing the experts where
// the full forward has a segment border.
TEST_P(EveryArchitecture, CachedStepsEqualTheFullForward) {
  const ModelConfig config = tiny_config(GetParam());
  const Model model = tiny_model(config, at::kDouble);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(2, kTokens, config.vocab_size, 15);
  const at::Tensor expected = logits_of(model, plain_input(tokens, config, 1));
  const std::vector<int64_t> prompt = {6, 3};  // the second row's padding is overwritten later
  KvCache cache(config, 2, kTokens + 3, at::kCPU, at::kDouble);
  ModelInput input = plain_input(tokens.narrow(1, 0, 6), config, 1);
  input.cache = &cache;
  ModelOutput output = model.forward(input);
  at::Tensor logits = at::linear(output.hidden_BTD, model.output_weight());
  for (int64_t row = 0; row < 2; ++row) {
    const int64_t length = prompt[static_cast<size_t>(row)];
    EXPECT_TRUE(
        at::allclose(logits[row].narrow(0, 0, length), expected[row].narrow(0, 0, length), 1e-10, 1e-10));
  }
  if (output.plan) {  // row 0 goes on in its second segment, row 1 in its first
    input.carried_mask_BLE = at::stack({output.plan->mask_QLE[1], output.plan->mask_QLE[2]});
  }
  cache.advance(prompt);
  for (int64_t step = 0; cache.lengths()[0] < kTokens; ++step) {
    const std::vector<int64_t> position = cache.lengths();
    input.tokens_BT = at::stack({tokens[0][position[0]], tokens[1][position[1]]}).unsqueeze(1);
    input.segments = {2, 1, {}};
    for (int64_t row = 0; row < 2; ++row) {
      const bool refresh = position[static_cast<size_t>(row)] % config.routing.segment_length == 0;
      input.segments.segments.push_back({row, 0, 1, refresh ? 0 : kCarriedSelector});
    }
    output = model.forward(input);
    logits = at::linear(output.hidden_BTD, model.output_weight());
    for (int64_t row = 0; row < 2; ++row) {
      EXPECT_TRUE(
          at::allclose(logits[row][0], expected[row][position[static_cast<size_t>(row)]], 1e-10, 1e-10))
          << "row " << row << " step " << step;
    }
    if (output.plan) {
      input.carried_mask_BLE = output.plan->mask_QLE;
    }
    cache.advance({1, 1});
  }
}

TEST(KvCache, SelectedRowsContinueTheirSources) {
  const ModelConfig config = tiny_config(Architecture::kDense);
  const Model model = tiny_model(config, at::kDouble);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = random_tokens(2, 6, config.vocab_size, 16);
  KvCache cache(config, 2, 10, at::kCPU, at::kDouble);
  ModelInput input = plain_input(tokens.narrow(1, 0, 5), config, 0);
  input.cache = &cache;
  model.forward(input);
  cache.advance({5, 5});
  KvCache selected = cache.select_rows({1, 1, 0});
  input.cache = &selected;
  input.tokens_BT = tokens.index_select(0, at::tensor({1, 1, 0}, at::kLong)).narrow(1, 5, 1);
  const at::Tensor logits = logits_of(model, input);
  const at::Tensor expected = logits_of(model, plain_input(tokens, config, 0)).select(1, 5);
  EXPECT_TRUE(at::allclose(logits[0][0], expected[1], 1e-10, 1e-10));
  EXPECT_TRUE(at::allclose(logits[1][0], expected[1], 1e-10, 1e-10));
  EXPECT_TRUE(at::allclose(logits[2][0], expected[0], 1e-10, 1e-10));
}

TEST(VanillaModel, CountsEveryTokenKTimes) {
  const ModelConfig config = tiny_config(Architecture::kVanillaMoe);
  const Model model = tiny_model(config);
  const TokenRouterLosses losses =
      *model.forward(plain_input(random_tokens(2, kTokens, config.vocab_size, 14), config, 1)).token_router;
  EXPECT_EQ(losses.num_tokens, 2 * kTokens);
  EXPECT_TRUE((losses.selected_count_LE.sum(1) == 3 * losses.num_tokens).all().item<bool>());
  EXPECT_TRUE(at::allclose(losses.probability_sum_LE.sum(1),
                           at::full({config.num_moe_layers}, static_cast<double>(losses.num_tokens))));
}

TEST(Initialization, DependsOnSeedAndNameOnly) {
  const ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  ModelConfig untied = config;
  untied.tied_embeddings = false;
  const Model first = tiny_model(config), second = tiny_model(untied),
              other = tiny_model(config, at::kFloat, 8);
  for (size_t index = 0; index < first.parameters().size(); ++index) {
    const NamedParameter& parameter = first.parameters()[index];
    EXPECT_TRUE(at::equal(parameter.tensor, second.parameters()[index].tensor)) << parameter.name;
    if (parameter.kind == ParameterKind::kMatrix) {
      EXPECT_FALSE(at::equal(parameter.tensor, other.parameters()[index].tensor)) << parameter.name;
    }
  }
}

TEST(Initialization, KeepsTheResidualStreamsVarianceWhateverTheDepthAndBudget) {
  ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  config.dim = 64;
  config.expert_dim = 32;
  config.dense_ffn_dim = 96;
  const Model model = tiny_model(config);
  const double layers = 2.0 * static_cast<double>(config.num_layers());
  const std::map<std::string, double> expected_fan_in = {
      {"layers.0.attention.q_proj.weight", 64},
      {"layers.0.feed_forward.up_proj.weight", 64},
      {"layers.3.routed_experts.gate_proj.weight", 64},
      {"layers.0.attention.o_proj.weight", layers * 32},
      {"layers.0.feed_forward.down_proj.weight", layers * 96},
      // One shared and six routed experts at the largest budget.
      {"layers.3.shared_expert.down_proj.weight", layers * 7 * 32},
      {"layers.3.routed_experts.down_proj.weight", layers * 7 * 32},
      {"token_embedding.weight", 64},
  };
  size_t found = 0;
  for (const NamedParameter& parameter : model.parameters()) {
    const auto expected = expected_fan_in.find(parameter.name);
    if (expected == expected_fan_in.end()) {
      continue;
    }
    ++found;
    EXPECT_NEAR(parameter.tensor.std().item<double>() * std::sqrt(expected->second), 1.0, 0.06)
        << parameter.name;
  }
  EXPECT_EQ(found, expected_fan_in.size());
}

}  // namespace
}  // namespace smoe
