// Small random models and inputs for the tests of the model area.
#pragma once

#include "smoe/model/model.h"
#include "smoe/routing/segment_map.h"

namespace smoe::testing {

inline ModelConfig tiny_config(Architecture architecture) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocab_size = 61;
  config.dim = 24;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.num_dense_layers = 2;
  config.dense_ffn_dim = 40;
  config.num_moe_layers = architecture == Architecture::kDense ? 0 : 3;
  config.num_experts = 8;
  config.expert_dim = 12;
  config.num_shared_experts = 1;
  config.budgets = {{"one", 1}, {"two", 3}, {"three", 6}};
  config.routing.segment_length = 4;
  return config;
}

inline Model tiny_model(const ModelConfig& config, at::ScalarType dtype = at::kFloat, uint64_t seed = 7) {
  Model model(config, at::kCPU, dtype);
  model.initialize(seed);
  return model;
}

inline at::Tensor random_tokens(int64_t num_rows, int64_t num_tokens, int64_t vocab_size, int64_t seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return at::randint(0, vocab_size, {num_rows, num_tokens}, at::TensorOptions().dtype(at::kLong));
}

inline constexpr SelectorPosition kSelectorPositions[] = {
    SelectorPosition::kFirst, SelectorPosition::kPreviousLast, SelectorPosition::kPreviousMean};

// Token `token` of a row that is fed one at a time: what fixed_segments() says of it, seen from there.
inline Segment single_token_segment(int64_t row, int64_t token, int64_t length, SelectorPosition position) {
  if (token % length != 0) return {row, 0, 1, kCarriedSelector};
  if (position == SelectorPosition::kFirst || token == 0) return {row, 0, 1, 0};
  return {row, 0, 1, -1, position == SelectorPosition::kPreviousMean ? length : 1};
}

// Rows under fixed segments, all at budget `budget`.
inline ModelInput plain_input(const at::Tensor& tokens_BT, const ModelConfig& config, int64_t budget) {
  ModelInput input;
  input.tokens_BT = tokens_BT;
  input.segments = fixed_segments(tokens_BT.size(0), tokens_BT.size(1), config.routing.segment_length,
                                  config.routing.selector_position);
  input.budget_of_row.assign(static_cast<size_t>(tokens_BT.size(0)), budget);
  return input;
}

inline at::Tensor logits_of(const Model& model, const ModelInput& input) {
  return at::linear(model.forward(input).hidden_BTD, model.output_weight());
}

}  // namespace smoe::testing
