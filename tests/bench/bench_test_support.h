// What the tests of the benchmarks share.
#pragma once

#include "smoe/bench/bench_config.h"

namespace smoe {

// A model that runs in milliseconds, with budgets of 2 and 5 of 6 experts.
inline BenchConfig small_bench_config(bool grouped_queries = false) {
  BenchConfig config;
  config.model.vocab_size = 50;
  config.model.dim = 16;
  config.model.num_heads = 4;
  config.model.num_kv_heads = grouped_queries ? 2 : 4;
  config.model.qk_norm = grouped_queries;
  config.model.head_dim = 8;
  config.model.num_dense_layers = 1;
  config.model.dense_ffn_dim = 24;
  config.model.num_moe_layers = 2;
  config.model.num_experts = 6;
  config.model.expert_dim = 4;
  config.model.budgets = {{"small", 2}, {"large", 5}};
  config.model.tied_embeddings = false;
  config.model.routing.segment_length = 8;
  config.bench = {2, 32};
  return config;
}

}  // namespace smoe
