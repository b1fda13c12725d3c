// Speed of training passes and of their two heavy parts on a device: tokens a second, and the share of the
// peak that useful operations reach. For GPUs; a small size exists to try the program on a CPU.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "smoe/model/model_config.h"
#include "smoe/train/train_config.h"

namespace smoe {

struct DeviceBenchOptions {
  at::Device device = at::kCPU;
  TrainDtype dtype = TrainDtype::kBfloat16;
  ModelConfig model;      // a Stepped MoE; the dense and vanilla models are made after it
  int64_t sequences = 4;  // a pass
  int64_t sequence_length = 2048;
  double seconds_each = 2.0;  // of measuring a row, after two runs that warm up
  double peak_tflops = 0.0;   // of the device in this type; 0: unknown, no MFU
  ActivationCheckpointing activation_checkpointing;
};

struct DeviceBenchRow {
  std::string name;               // "train stepped_moe 3B"
  double milliseconds = 0.0;      // a pass
  double tokens_per_s = 0.0;      // 0 where it makes no sense
  double tflops = 0.0;            // useful operations a second
  double mfu = 0.0;               // tflops / peak; 0: the peak is unknown
  int64_t peak_memory_bytes = 0;  // of the process so far
};

// Forward, loss and backward of each architecture at each of its budgets, an optimizer step, then attention
// and routed experts by themselves, forward and backward. `on_row` is called as soon as a row is measured.
// Throws ConfigError if the model is no Stepped MoE, or has widths that the type does not allow.
std::vector<DeviceBenchRow> run_device_bench(const DeviceBenchOptions& options,
                                             const std::function<void(const DeviceBenchRow&)>& on_row);

std::string device_bench_table(const std::vector<DeviceBenchRow>& rows);
std::string device_bench_json(const DeviceBenchOptions& options, const std::vector<DeviceBenchRow>& rows);

}  // namespace smoe
