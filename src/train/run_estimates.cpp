#include "run_estimates.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "smoe/core/progress.h"
#include "smoe/distributed/shard_groups.h"
#include "smoe/model/device.h"
#include "smoe/model/parameter_counts.h"
#include "smoe/model/parameter_report.h"
#include "smoe/train/compute_account.h"
#include "smoe/train/precision.h"

namespace smoe {
namespace {

constexpr double kFloatBytes = 4.0;

double weight_bytes(const TrainConfig& config) {
  return static_cast<double>(c10::elementSize(scalar_type(config.dtype)));
}

// Two moments, and float32 masters of half-precision weights.
double optimizer_bytes(const TrainConfig& config) {
  return 2.0 * kFloatBytes + (config.dtype == TrainDtype::kFloat32 ? 0.0 : kFloatBytes);
}

double num_parameters(const TrainConfig& config) {
  return static_cast<double>(count_parameters(config.model, config.data.sequence_length).total);
}

// Values that the backward pass of one layer needs, for one token of the largest budget: inputs of two norms
// and their results, queries, keys and values before and after the rotation, the attention's result, and
// gate, up and product of the experts. A layer that is recomputed keeps its input.
double activation_values(const TrainConfig& config) {
  const ModelConfig& model = config.model;
  int64_t experts = 0;
  for (const BudgetConfig& budget : model.budgets) experts = std::max(experts, budget.experts_per_layer);
  const double attention =
      static_cast<double>(4 * model.dim + 2 * (model.num_heads + 2 * model.num_kv_heads) * model.head_dim +
                          model.num_heads * model.head_dim);
  const double dense = static_cast<double>(3 * model.dense_ffn_dim);
  const double moe = static_cast<double>(3 * (experts + model.num_shared_experts) * model.expert_dim);
  double values = 0.0;
  for (int64_t layer = 0; layer < model.num_dense_layers + model.num_moe_layers; ++layer) {
    const bool is_dense = layer < model.num_dense_layers;
    values += config.activation_checkpointing.covers(layer, model.num_dense_layers)
                  ? static_cast<double>(model.dim)
                  : attention + (is_dense ? dense : moe);
  }
  return values;
}

// FLOPs a second of products of square matrices in the type of the run.
double matrix_product_rate(const TrainConfig& config) {
  constexpr auto kTime = std::chrono::milliseconds(300);
  const at::Device device = resolve_device(config.device);
  const int64_t size = device.is_cuda() ? 4096 : 768;
  const at::NoGradGuard no_gradient;
  const at::Tensor left =
      at::full({size, size}, 0.01, at::TensorOptions(device).dtype(scalar_type(config.dtype)));
  const at::Tensor right = left.clone();
  const auto finish = [](const at::Tensor& product) { static_cast<void>(product[0][0].item<float>()); };
  finish(at::mm(left, right));  // the first call prepares kernels
  const auto start = std::chrono::steady_clock::now();
  int64_t count = 0;
  do {
    at::Tensor product;
    for (int i = 0; i < 4; ++i, ++count) product = at::mm(left, right);
    finish(product);
  } while (std::chrono::steady_clock::now() - start < kTime);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double cube = static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  return 2.0 * cube * static_cast<double>(count) / seconds;
}

// "26.3 MFLOP".
std::string format_flop(double flop) {
  constexpr std::array kPrefixes = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  size_t prefix = 0;
  for (; flop >= 1000.0 && prefix + 1 < kPrefixes.size(); ++prefix) flop /= 1000.0;
  return fmt::format("{:.3g} {}FLOP", flop, kPrefixes[prefix]);
}

// Weights are dealt out to all processes; the optimizer's states are saved by the first shard group, which is
// rank 0 alone where nothing is shared out.
double copy_bytes(const TrainConfig& config, int64_t world_size) {
  return num_parameters(config) * (weight_bytes(config) / static_cast<double>(world_size) +
                                   optimizer_bytes(config) / static_cast<double>(shard_group_processes(
                                                                 config.distributed, world_size)));
}

std::string line(const char* label, double bytes, const char* what) {
  return fmt::format("{:<16}{:>10}  {}\n", label, format_bytes(bytes), what);
}

}  // namespace

int64_t checkpoint_bytes(const TrainConfig& config) {
  return static_cast<int64_t>(num_parameters(config) * (weight_bytes(config) + optimizer_bytes(config)));
}

int64_t most_checkpoints(const TrainConfig& config) {
  const CheckpointConfig& keep = config.checkpoint;
  const int64_t all = (config.steps + keep.every_steps - 1) / keep.every_steps;
  if (keep.keep_last == 0) return all;
  const int64_t multiples = keep.keep_every_steps > 0 ? config.steps / keep.keep_every_steps : 0;
  return std::min(all, keep.keep_last + multiples + 1);
}

int64_t most_rows(const TrainConfig& config, int64_t world_size) {
  return (config.batch_size + world_size - 1) / world_size;
}

std::string describe_memory(const TrainConfig& config, int64_t world_size) {
  const int64_t stage = world_size == 1 ? 0 : config.distributed.zero_stage;
  const int64_t shards = shard_group_processes(config.distributed, world_size);
  const ProcessState state = process_state(config.model, config.dtype != TrainDtype::kFloat32, stage, shards);
  const int64_t rows = std::min(config.micro_batch_size, most_rows(config, world_size));
  const double row_tokens = static_cast<double>(rows) * static_cast<double>(config.data.sequence_length);
  const double head_tokens = std::min(static_cast<double>(config.loss.head_chunk_tokens), row_tokens);
  const double vocabulary = static_cast<double>(config.model.vocab_size);
  std::string text = line("memory", state.weights, "weights");
  text += line("", state.gradients, "gradients (float32)");
  text += line("", state.optimizer,
               config.dtype == TrainDtype::kFloat32 ? "two moments (float32)"
                                                    : "two moments and master weights (float32)");
  text += line("", row_tokens * activation_values(config) * weight_bytes(config),
               "activations of a micro-batch of the largest budget, about");
  text += line("", head_tokens * vocabulary * kFloatBytes, "one chunk of logits (float32)");
  text += line("", vocabulary * static_cast<double>(config.model.dim) * kFloatBytes,
               "gradient of the output head (float32)");
  if (config.checkpoint.asynchronous)
    text += line("", copy_bytes(config, world_size), "copy for saving beside training, in host memory");
  if (world_size > 1) {
    text += fmt::format("                in each of {} processes: zero_stage {}, shards over {}\n",
                        world_size, stage, shards);
  }
  return text;
}

std::string describe_time(const TrainConfig& config, std::optional<double> tokens_per_s, int64_t world_size) {
  const ComputeAccount account = account_compute(config);
  const double steps = static_cast<double>(config.steps);
  std::string text = fmt::format("compute         {} a step, {} in all ({} by 6 N T)\n",
                                 format_flop(account.flops_exact() / steps),
                                 format_flop(account.flops_exact()), format_flop(account.flops_6nt()));
  if (tokens_per_s) {
    return text + fmt::format("time            {} at {} tokens/s\n",
                              format_duration(account.tokens() / *tokens_per_s), format_count(*tokens_per_s));
  }
  const double rate = matrix_product_rate(config) * static_cast<double>(world_size);
  return text + fmt::format(
                    "time            at least {}: all of it at the {}/s that matrix products of {} reach "
                    "here on {} process{}\n                (with --tokens-per-second, what a run of that "
                    "speed takes)\n",
                    format_duration(account.flops_exact() / rate), format_flop(rate),
                    enum_to_name(config.dtype), world_size, world_size == 1 ? "" : "es");
}

}  // namespace smoe
