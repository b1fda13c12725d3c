// What smoe-bench measures: a model and the shape of a batch of random tokens.
#pragma once

#include <cstdint>

#include "smoe/data/batch.h"
#include "smoe/model/model.h"
#include "smoe/model/model_config.h"
#include "smoe/train/train_config.h"

namespace smoe {

struct BatchShape {
  int64_t sequences = 4;
  int64_t sequence_length = 512;

  int64_t num_tokens() const { return sequences * sequence_length; }
};
template <class Visitor>
void visit_fields(Visitor& visitor, BatchShape& config) {
  visitor.field("sequences", config.sequences, "unique sequences a step", at_least(1));
  visitor.field("sequence_length", config.sequence_length, "tokens a sequence", at_least(2));
}

struct BenchConfig {
  ModelConfig model;
  BatchShape bench;
};
template <class Visitor>
void visit_fields(Visitor& visitor, BenchConfig& config) {
  visitor.field("model", config.model, "architecture and sizes");
  visitor.field("bench", config.bench, "the batch of a step");
}

// Tokens drawn uniformly from the vocabulary; every token is a target.
Batch random_batch(const BenchConfig& config, uint64_t seed);

// One pass of the whole batch at `budget` (ignored by dense models).
ModelInput input_at_budget(const Batch& batch, const BenchConfig& config, int64_t budget);

// The training run that the benchmark times: the batch in one micro-batch a budget, every budget a step.
TrainConfig bench_train_config(const BenchConfig& config);

// Useful floating-point operations of one forward of the batch at `budget`: the selected experts only, causal
// attention as half of the square.
double forward_flops(const BenchConfig& config, int64_t budget);

// The dense model of the same skeleton with as many active parameters as `budget`.
BenchConfig dense_of_equal_size(const BenchConfig& config, int64_t budget);

}  // namespace smoe
