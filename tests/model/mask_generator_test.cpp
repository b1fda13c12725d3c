// Which states choose, and what the heads make of them, against loops over single numbers.
#include "smoe/model/mask_generator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/model_test_support.h"

namespace smoe {
namespace {

using testing::kSelectorPositions;
using testing::logits_of;
using testing::plain_input;
using testing::random_tokens;
using testing::tiny_config;
using testing::tiny_model;

ModelConfig config_with(SelectorPosition position, const MaskHeadConfig& head = {}) {
  ModelConfig config = tiny_config(Architecture::kSteppedMoe);
  config.routing.selector_position = position;
  config.routing.mask_head = head;
  return config;
}

constexpr MaskHeadConfig kHeads[] = {{MaskHeadKind::kLinear, 10, false},
                                     {MaskHeadKind::kMlp, 10, false},
                                     {MaskHeadKind::kLinear, 10, true},
                                     {MaskHeadKind::kMlp, 10, true}};

TEST(SelectorStates, AreMeansOverTheirTokens) {
  const at::Tensor z_BTD = at::arange(2 * 6 * 3, at::kFloat).view({2, 6, 3});
  const SegmentMap map{2, 6, {{0, 0, 2, 0}, {0, 2, 4, 1, 2}, {0, 4, 6, 3, 2}, {1, 0, 6, 4, 3}}};
  const at::Tensor state_QD = selector_states(z_BTD, map);
  EXPECT_TRUE(at::equal(state_QD[0], z_BTD[0][0]));
  EXPECT_TRUE(at::allclose(state_QD[1], z_BTD[0].narrow(0, 0, 2).mean(0)));
  EXPECT_TRUE(at::allclose(state_QD[2], z_BTD[0].narrow(0, 2, 2).mean(0)));
  EXPECT_TRUE(at::allclose(state_QD[3], z_BTD[1].narrow(0, 2, 3).mean(0)));
}

TEST(SelectorStates, NeverFollowWhatTheirSegmentHolds) {
  constexpr int64_t kTokens = 12;
  for (const SelectorPosition position : kSelectorPositions) {
    const ModelConfig config = config_with(position);
    const Model model = tiny_model(config);
    const at::NoGradGuard no_gradients;
    const at::Tensor tokens = random_tokens(1, kTokens, config.vocab_size, 3);
    const at::Tensor before_QLE = model.forward(plain_input(tokens, config, 1)).plan->logits_QLE;
    for (int64_t changed = 0; changed < kTokens; ++changed) {
      at::Tensor others = tokens.clone();
      others[0][changed] = (others[0][changed].item<int64_t>() + 1) % config.vocab_size;
      const at::Tensor after_QLE = model.forward(plain_input(others, config, 1)).plan->logits_QLE;
      for (int64_t q = 0; q < before_QLE.size(0); ++q) {
        const int64_t begin = q * config.routing.segment_length;
        // The first segment has nothing before it.
        const int64_t last = position == SelectorPosition::kFirst || q == 0 ? begin : begin - 1;
        EXPECT_EQ(at::equal(before_QLE[q], after_QLE[q]), changed > last)
            << enum_to_name(position) << ", segment " << q << ", token " << changed;
      }
    }
  }
}

// One segment's logits, number by number in double.
std::vector<double> slow_logits(const at::Tensor& state_D, const MaskGeneratorWeights& weights,
                                const ModelConfig& config) {
  const auto numbers = [](const at::Tensor& tensor) {
    const at::Tensor values = tensor.to(at::kDouble).contiguous().flatten();
    return std::vector<double>(values.const_data_ptr<double>(),
                               values.const_data_ptr<double>() + values.numel());
  };
  const auto normed = [&](std::vector<double> values) {
    double squares = config.norm_eps * static_cast<double>(values.size());
    for (const double value : values) squares += value * value;
    for (double& value : values) value /= std::sqrt(squares / static_cast<double>(values.size()));
    return values;
  };
  const auto product = [](const std::vector<double>& matrix, const std::vector<double>& x) {
    std::vector<double> y(matrix.size() / x.size(), 0.0);
    for (size_t i = 0; i < matrix.size(); ++i) y[i / x.size()] += matrix[i] * x[i % x.size()];
    return y;
  };
  std::vector<double> x = normed(numbers(state_D));
  const std::vector<double> gain = numbers(weights.norm);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= gain[i];
  if (config.routing.mask_head.kind == MaskHeadKind::kMlp) {
    x = product(numbers(weights.hidden_HD), x);
    for (double& value : x) value /= 1.0 + std::exp(-value);
  }
  std::vector<double> logits = product(numbers(weights.proj), x);
  if (!config.routing.mask_head.normalize_layers) return logits;
  const auto experts = static_cast<std::ptrdiff_t>(config.num_experts);
  std::vector<double> result;
  const std::vector<double> layer_gain = numbers(weights.layer_gain_L);
  for (size_t layer = 0; layer < layer_gain.size(); ++layer) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(layer) * experts;
    for (const double value : normed({begin, begin + experts})) result.push_back(layer_gain[layer] * value);
  }
  return result;
}

MaskGeneratorWeights random_weights(const ModelConfig& config) {
  at::manual_seed(5);
  const MaskHeadConfig& head = config.routing.mask_head;
  const bool is_mlp = head.kind == MaskHeadKind::kMlp;
  MaskGeneratorWeights weights;
  weights.norm = at::rand({config.dim}) + 0.5;
  if (is_mlp) weights.hidden_HD = at::randn({head.hidden_dim, config.dim});
  weights.proj =
      at::randn({config.num_moe_layers * config.num_experts, is_mlp ? head.hidden_dim : config.dim});
  if (head.normalize_layers) weights.layer_gain_L = at::rand({config.num_moe_layers}) + 0.5;
  return weights;
}

TEST(MaskLogits, AgreeWithALoopOverNumbers) {
  for (const MaskHeadConfig& head : kHeads) {
    const ModelConfig config = config_with(SelectorPosition::kFirst, head);
    const MaskGeneratorWeights weights = random_weights(config);
    const at::Tensor state_QD = at::randn({2, config.dim});
    const SegmentMap map = fixed_segments(1, 8, 4);
    const at::Tensor logits_QLE = mask_logits(state_QD, weights, map, {}, config);
    for (int64_t q = 0; q < 2; ++q) {
      const std::vector<double> expected = slow_logits(state_QD[q], weights, config);
      const at::Tensor found = logits_QLE[q].flatten();
      ASSERT_EQ(found.numel(), std::ssize(expected));
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(found[static_cast<int64_t>(i)].item<double>(), expected[i], 1e-4);
      }
    }
  }
}

// The logits are float32 by design, so that the differences come from the loop in double.
TEST(MaskLogits, GradientsAgreeWithFiniteDifferences) {
  for (const MaskHeadConfig& head : kHeads) {
    const ModelConfig config = config_with(SelectorPosition::kFirst, head);
    MaskGeneratorWeights weights = random_weights(config);
    at::Tensor state_QD = at::randn({1, config.dim});
    std::vector<at::Tensor> inputs = {state_QD, weights.norm, weights.proj};
    if (weights.hidden_HD.defined()) inputs.push_back(weights.hidden_HD);
    if (weights.layer_gain_L.defined()) inputs.push_back(weights.layer_gain_L);
    for (const at::Tensor& input : inputs) input.set_requires_grad(true);
    const SegmentMap map = fixed_segments(1, 4, 4);
    at::sin(mask_logits(state_QD, weights, map, {}, config)).sum().backward();
    const at::NoGradGuard no_gradients;
    // Copies in double, which the loop reads.
    MaskGeneratorWeights exact = weights;
    at::Tensor exact_state = state_QD.to(at::kDouble);
    std::vector<at::Tensor> copies = {exact_state, exact.norm = weights.norm.to(at::kDouble),
                                      exact.proj = weights.proj.to(at::kDouble)};
    if (weights.hidden_HD.defined()) copies.push_back(exact.hidden_HD = weights.hidden_HD.to(at::kDouble));
    if (weights.layer_gain_L.defined())
      copies.push_back(exact.layer_gain_L = weights.layer_gain_L.to(at::kDouble));
    const auto value = [&] {
      double sum = 0.0;
      for (const double logit : slow_logits(exact_state[0], exact, config)) sum += std::sin(logit);
      return sum;
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      at::Tensor flat = copies[i].view(-1);
      for (int64_t index = 0; index < flat.numel(); index += 1 + flat.numel() / 5) {
        const double original = flat[index].item<double>();
        flat[index] = original + 1e-6;
        const double plus = value();
        flat[index] = original - 1e-6;
        const double minus = value();
        flat[index] = original;
        const double expected = (plus - minus) / 2e-6;
        EXPECT_NEAR(inputs[i].grad().view(-1)[index].item<double>(), expected,
                    1e-3 * (1.0 + std::abs(expected)))
            << "input " << i << ", number " << index;
      }
    }
  }
}

TEST(SteppedModel, TrainsEveryHeadFromEverySelector) {
  for (const SelectorPosition position : kSelectorPositions) {
    for (const MaskHeadConfig& head : kHeads) {
      const ModelConfig config = config_with(position, head);
      const Model model = tiny_model(config);
      logits_of(model, plain_input(random_tokens(2, 11, config.vocab_size, 4), config, 1))
          .square()
          .mean()
          .backward();
      for (const NamedParameter& parameter : model.parameters()) {
        if (!parameter.name.starts_with("mask_generator")) continue;
        ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
        EXPECT_GT(parameter.tensor.grad().abs().sum().item<double>(), 0.0) << parameter.name;
      }
    }
  }
}

// Two rows of different lengths, so that the same forward begins a segment in one and carries on in the
// other.
TEST(SteppedModel, CachedStepsEqualTheFullForwardAtEverySelectorPosition) {
  constexpr int64_t kTokens = 15;
  for (const SelectorPosition position : kSelectorPositions) {
    const ModelConfig config = config_with(position);
    const Model model = tiny_model(config, at::kDouble);
    const at::NoGradGuard no_gradients;
    const at::Tensor tokens = random_tokens(2, kTokens, config.vocab_size, 15);
    const at::Tensor expected = logits_of(model, plain_input(tokens, config, 1));
    KvCache cache(config, 2, kTokens + 3, at::kCPU, at::kDouble);
    ModelInput input = plain_input(tokens.narrow(1, 0, 6), config, 1);
    input.cache = &cache;
    ModelOutput output = model.forward(input);
    input.carried_mask_BLE = at::stack({output.plan->mask_QLE[1], output.plan->mask_QLE[2]});
    cache.advance({6, 3});
    while (cache.lengths()[0] < kTokens) {
      const std::vector<int64_t> at = cache.lengths();
      input.tokens_BT = at::stack({tokens[0][at[0]], tokens[1][at[1]]}).unsqueeze(1);
      input.segments = {2,
                        1,
                        {testing::single_token_segment(0, at[0], config.routing.segment_length, position),
                         testing::single_token_segment(1, at[1], config.routing.segment_length, position)}};
      output = model.forward(input);
      const at::Tensor logits = at::linear(output.hidden_BTD, model.output_weight());
      for (int64_t row = 0; row < 2; ++row) {
        EXPECT_TRUE(at::allclose(logits[row][0], expected[row][at[static_cast<size_t>(row)]], 1e-6, 1e-6))
            << enum_to_name(position) << ", row " << row << ", token " << at[static_cast<size_t>(row)];
      }
      input.carried_mask_BLE = output.plan->mask_QLE;
      cache.advance({1, 1});
      cache.reserve(cache.capacity() + 1);
    }
  }
}

}  // namespace
}  // namespace smoe
