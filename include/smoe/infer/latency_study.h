// Decoding time of dense, Stepped and vanilla models on a device whose speeds are given: the study of the
// paper's Section 3.4, over hit rates and decoding lengths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "smoe/core/config.h"
#include "smoe/infer/latency_simulation.h"
#include "smoe/model/model_config.h"

namespace smoe {

struct LatencyHardware {
  std::string name = "device";
  double compute_flops = 10e12;
  double memory_bandwidth = 60e9;
  double storage_bandwidth = 3e9;
  double storage_latency_s = 0.0;
  double layer_overhead_s = 0.0;
  double weight_bits = 4.0;
  double kv_bits = 16.0;
};
template <class Visitor>
void visit_fields(Visitor& visitor, LatencyHardware& config) {
  visitor.field("name", config.name, "for titles");
  visitor.field("compute_flops", config.compute_flops, "floating-point operations a second", positive());
  visitor.field("memory_bandwidth", config.memory_bandwidth, "bytes a second from DRAM", positive());
  visitor.field("storage_bandwidth", config.storage_bandwidth, "bytes a second from NAND to DRAM",
                positive());
  visitor.field("storage_latency_s", config.storage_latency_s, "seconds before one layer's load begins",
                at_least(0.0));
  visitor.field("layer_overhead_s", config.layer_overhead_s, "seconds a layer takes beside its arithmetic",
                at_least(0.0));
  visitor.field("weight_bits", config.weight_bits, "bits a weight", positive());
  visitor.field("kv_bits", config.kv_bits, "bits a cached key or value", at_least(0.0));
}

// Costs of the MoE model at one of its budgets; a vanilla MoE runs its routers at every token.
DecodeCosts moe_costs(const ModelConfig& config, int64_t experts_per_layer, bool is_vanilla,
                      const LatencyHardware& hardware);
// Costs of a dense model of the same depth and width with `parameters` outside its embeddings.
DecodeCosts dense_costs(const ModelConfig& config, double parameters, const LatencyHardware& hardware);

struct LatencyStudyOptions {
  std::string budget;  // of the MoE lines: a name or k; empty: the largest but one
  std::vector<double> dense_sizes = {1e9, 2e9, 3e9, 4e9, 5e9, 6e9};
  std::vector<int64_t> segment_lengths = {8, 16, 32, 64};
  std::vector<double> hit_rates = {0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6};
  std::vector<int64_t> decode_tokens = {32, 64, 128, 256, 512, 1024};
  int64_t prompt_tokens = 0;
};

struct LatencyRow {
  std::string line;  // "dense 3B", "vanilla 3B", "stepped 3B S=32"
  double hit_rate = 0;
  int64_t decode_tokens = 0;
  double ms_per_token = 0;
  double total_s = 0;
  double stall_share = 0;  // of the total
};

// Every line at every hit rate and length. Throws ConfigError for a model that is not a stepped_moe and for
// options out of range.
std::vector<LatencyRow> run_latency_study(const ModelConfig& config, const LatencyHardware& hardware,
                                          const LatencyStudyOptions& options);

std::string latency_csv(const std::vector<LatencyRow>& rows);

// Two panels: time a token against the length (at `hit_rate`) and against the hit rate (at `decode_tokens`).
struct LatencyPlotOptions {
  std::filesystem::path out;
  std::string title;
  double hit_rate = 0.4;
  int64_t decode_tokens = 256;
};
void plot_latency(const std::vector<LatencyRow>& rows, const LatencyPlotOptions& options);

}  // namespace smoe
