#include "model/document_attention.h"

#include <gtest/gtest.h>

#include "model/model_test_support.h"
#include "smoe/model/layers.h"

namespace smoe {
namespace {

const at::Tensor kDocuments =
    at::tensor({0, 0, 0, 1, 2, 2, 2, 2, 2, 4, 4, 7, 7, 7, 7, 7, 7, -1}, at::kLong).view({2, 9});

// float64 leaves of the test.
std::vector<at::Tensor> random_inputs() {
  at::manual_seed(4);
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < 3; ++i) inputs.push_back(at::randn({2, 3, 9, 5}, at::kDouble).requires_grad_());
  return inputs;
}

TEST(DocumentLengths, AreTheRunsOfEqualNumbers) {
  EXPECT_EQ(document_lengths(kDocuments), (DocumentLengths{{3, 1, 5}, {2, 6, 1}}));
  EXPECT_EQ(document_lengths(at::full({1, 4}, 3, at::kLong)), (DocumentLengths{{4}}));
}

TEST(DocumentAttention, EqualsTheMaskedAttentionForwardAndBackward) {
  const std::vector<at::Tensor> inputs = random_inputs();
  const std::vector<at::Tensor> expected_inputs = random_inputs();
  const at::Tensor found = document_attention(inputs[0], inputs[1], inputs[2], document_lengths(kDocuments));
  const at::Tensor scores =
      at::matmul(expected_inputs[0], expected_inputs[1].transpose(-1, -2)) / std::sqrt(5.0);
  const at::Tensor forbidden = document_causal_mask(kDocuments).logical_not().unsqueeze(1);
  const at::Tensor expected =
      at::matmul(scores.masked_fill(forbidden, -1e300).softmax(-1), expected_inputs[2]);
  EXPECT_TRUE(at::allclose(found, expected, 1e-10, 1e-12));

  const at::Tensor gradient = at::randn(found.sizes(), at::kDouble);
  (found * gradient).sum().backward();
  (expected * gradient).sum().backward();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::allclose(inputs[i].grad(), expected_inputs[i].grad(), 1e-9, 1e-11)) << i;
  }
}

// The whole model, every parameter.
TEST(DocumentAttention, GivesTheModelTheLossAndGradientsOfTheMask) {
  for (const auto architecture : {Architecture::kDense, Architecture::kSteppedMoe}) {
    const ModelConfig config = testing::tiny_config(architecture);
    const Model masked = testing::tiny_model(config, at::kDouble);
    const Model listed = testing::tiny_model(config, at::kDouble);
    const auto run = [&](const Model& model, bool with_mask) {
      ModelInput input = testing::plain_input(testing::random_tokens(2, 9, config.vocab_size, 3), config, 1);
      input.segments = fixed_segments(kDocuments, 4);
      if (with_mask) {
        input.attention_BTT = document_causal_mask(kDocuments);
      } else {
        input.document_lengths = document_lengths(kDocuments);
      }
      const at::Tensor logits = testing::logits_of(model, input);
      logits.square().sum().backward();
      return logits;
    };
    EXPECT_TRUE(at::allclose(run(listed, false), run(masked, true), 1e-9, 1e-10));
    for (size_t i = 0; i < masked.parameters().size(); ++i) {
      const NamedParameter& parameter = masked.parameters()[i];
      if (!parameter.tensor.grad().defined()) continue;
      EXPECT_TRUE(at::allclose(listed.parameters()[i].tensor.grad(), parameter.tensor.grad(), 1e-8, 1e-10))
          << parameter.name;
    }
  }
}

}  // namespace
}  // namespace smoe
