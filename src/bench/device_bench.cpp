#include "smoe/bench/device_bench.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "model/packed_attention.h"
#include "smoe/core/error.h"
#include "smoe/core/table.h"
#include "smoe/model/device.h"
#include "smoe/model/model.h"
#include "smoe/model/parameter_counts.h"
#include "smoe/model/segment_layout.h"
#include "smoe/train/loss.h"
#include "smoe/train/model_input.h"
#include "smoe/train/optimizer.h"

namespace smoe {
namespace {

constexpr double kTera = 1e12;

void wait_for(at::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

// What a row measures.
struct Subject {
  std::string name;
  double tokens = 0.0;
  double flops = 0.0;  // useful ones
  std::function<void()> run;
};

DeviceBenchRow measure(const Subject& subject, const DeviceBenchOptions& options) {
  using Clock = std::chrono::steady_clock;
  for (int warm_up = 0; warm_up < 2; ++warm_up) subject.run();
  wait_for(options.device);
  const auto start = Clock::now();
  double seconds = 0.0;
  int64_t runs = 0;
  // Runs are queued in rounds that double: waiting after each would measure the waiting.
  for (int64_t round = 1; seconds < options.seconds_each; round *= 2) {
    for (int64_t i = 0; i < round; ++i) subject.run();
    wait_for(options.device);
    runs += round;
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  const double each = seconds / static_cast<double>(runs);
  DeviceBenchRow row;
  row.name = subject.name;
  row.milliseconds = 1e3 * each;
  row.tokens_per_s = subject.tokens / each;
  row.tflops = subject.flops / each / kTera;
  row.mfu = options.peak_tflops > 0.0 ? row.tflops / options.peak_tflops : 0.0;
  row.peak_memory_bytes = peak_memory_bytes(options.device);
  return row;
}

at::ScalarType scalar_type(TrainDtype dtype) {
  return dtype == TrainDtype::kBfloat16 ? at::kBFloat16 : at::kFloat;
}

Batch random_rows(const DeviceBenchOptions& options) {
  at::manual_seed(1);
  const at::Tensor tokens =
      at::randint(options.model.vocab_size, {options.sequences, options.sequence_length + 1}, at::kLong);
  Batch batch;
  batch.tokens_BT = tokens.narrow(1, 0, options.sequence_length).contiguous();
  batch.targets_BT = tokens.narrow(1, 1, options.sequence_length).contiguous();
  batch.loss_mask_BT = at::ones_like(batch.tokens_BT, at::kBool);
  return batch;
}

// The model of `options` in another architecture: the dense one is as large as the largest budget.
ModelConfig model_of(const DeviceBenchOptions& options, Architecture architecture) {
  ModelConfig config = options.model;
  config.architecture = architecture;
  if (architecture != Architecture::kDense) return config;
  const ParameterCounts counts = count_parameters(options.model, options.sequence_length);
  const int64_t width =
      solve_dense_ffn_dim(options.model, static_cast<double>(counts.budgets.back().active_non_embedding));
  config.dense_ffn_dim = (width + 7) / 8 * 8;
  config.num_dense_layers = options.model.num_layers();
  config.num_moe_layers = 0;
  return config;
}

// One forward, loss and backward of the whole batch.
void train_pass(const Model& model, const Batch& batch, int64_t budget) {
  const std::vector<int64_t> budgets(static_cast<size_t>(batch.num_rows()), budget);
  const ModelInput input = make_model_input(batch, model.config().routing.segment_length, budgets,
                                            model.device(), model.config().routing.selector_position);
  const ModelOutput output = model.forward(input);
  const at::Tensor weights_N =
      at::full({batch.tokens_BT.numel()}, 1.0 / static_cast<double>(batch.tokens_BT.numel()));
  head_cross_entropy(output.hidden_BTD.flatten(0, 1), model.output_weight(), batch.targets_BT.flatten(),
                     weights_N, {0.0, 4096})
      .weighted_loss.backward();
}

using RowSink = std::function<void(const Subject&)>;

void bench_architecture(const DeviceBenchOptions& options, Architecture architecture, const RowSink& sink) {
  const ModelConfig config = model_of(options, architecture);
  Model model(config, options.device, scalar_type(options.dtype));
  model.initialize(1);
  model.set_activation_checkpointing(options.activation_checkpointing);
  Optimizer optimizer(OptimizerConfig{}, model.parameters(), config.dim);
  const Batch batch = random_rows(options);
  const double tokens = static_cast<double>(batch.tokens_BT.numel());
  const ParameterCounts counts = count_parameters(config, options.sequence_length);
  const std::string name(enum_to_name(architecture));
  for (size_t budget = 0; budget < counts.budgets.size(); ++budget) {
    const BudgetCounts& size = counts.budgets[budget];
    // The backward pass costs twice the forward; what a policy recomputes is not useful work.
    sink({fmt::format("train {} {} ({:.2f}B active)", name, size.name,
                      1e-9 * static_cast<double>(size.active)),
          tokens, 3.0 * size.forward_flops_per_token * tokens,
          [&model, &batch, budget] { train_pass(model, batch, static_cast<int64_t>(budget)); }});
  }
  optimizer.zero_gradients();
  sink({fmt::format("optimizer step {} ({:.2f}B)", name, 1e-9 * static_cast<double>(counts.total)), 0.0, 0.0,
        [&optimizer] { optimizer.step(0.0); }});
}

at::Tensor random_leaf(at::IntArrayRef sizes, const DeviceBenchOptions& options) {
  return (at::randn(sizes) * 0.02).to(options.device, scalar_type(options.dtype)).set_requires_grad(true);
}

// Forward and backward, causal over whole rows and inside documents of a quarter of a row.
void bench_attention(const DeviceBenchOptions& options, const RowSink& sink) {
  const ModelConfig& config = options.model;
  const int64_t length = options.sequence_length;
  const auto heads = [&](int64_t count) {
    return random_leaf({options.sequences, length, count, config.head_dim}, options);
  };
  const at::Tensor q = heads(config.num_heads), k = heads(config.num_kv_heads),
                   v = heads(config.num_kv_heads);
  const auto sink_documents = [&](const std::string& name, int64_t document) {
    const DocumentLengths lengths(static_cast<size_t>(options.sequences),
                                  std::vector<int64_t>(static_cast<size_t>(length / document), document));
    const PackedDocuments documents = pack_documents(lengths, options.device);
    const auto attend = options.device.is_cuda() ? packed_attention : packed_attention_reference;
    // Two products over half of the square; the backward pass has five.
    const double flops = 3.5 * 4.0 * 0.5 * static_cast<double>(document) *
                         static_cast<double>(options.sequences * length * config.num_heads * config.head_dim);
    sink({name, static_cast<double>(options.sequences * length), flops,
          [=] { attend(q, k, v, documents).sum().backward(); }});
  };
  sink_documents("attention, whole rows", length);
  sink_documents("attention, 4 documents a row", length / 4);
}

void bench_routed_experts(const DeviceBenchOptions& options, const RowSink& sink) {
  const ModelConfig& config = options.model;
  const int64_t num_tokens = options.sequences * options.sequence_length;
  const ExpertWeights weights{random_leaf({config.num_experts, config.expert_dim, config.dim}, options),
                              random_leaf({config.num_experts, config.expert_dim, config.dim}, options),
                              random_leaf({config.num_experts, config.dim, config.expert_dim}, options)};
  const at::Tensor x_ND = random_leaf({num_tokens, config.dim}, options);
  std::vector<TokenRange> ranges;
  for (int64_t begin = 0; begin < num_tokens; begin += config.routing.segment_length) {
    ranges.push_back({begin, std::min(begin + config.routing.segment_length, num_tokens)});
  }
  const auto num_segments = static_cast<int64_t>(ranges.size());
  for (const BudgetConfig& budget : config.budgets) {
    const int64_t k = budget.experts_per_layer;
    const at::Tensor order_QE =
        at::rand({num_segments, config.num_experts}).argsort(int64_t{-1}).argsort(int64_t{-1});
    const at::Tensor selected_QE = (order_QE < k).to(options.device);
    const at::Tensor mask_QE = selected_QE.to(at::kFloat).set_requires_grad(true);
    const auto layout =
        c10::make_intrusive<SegmentLayout>(ranges, at::full({num_segments}, k, at::kLong), options.device,
                                           default_chunk_rows(config.dim, x_ND.scalar_type()));
    const double flops = 3.0 * 6.0 * static_cast<double>(num_tokens * k * config.dim * config.expert_dim);
    sink({fmt::format("routed experts {} of {}", k, config.num_experts), static_cast<double>(num_tokens),
          flops,
          [=] { routed_experts_grouped(x_ND, weights, mask_QE, selected_QE, layout).sum().backward(); }});
  }
}

void check_options(const DeviceBenchOptions& options) {
  const ModelConfig& config = options.model;
  SMOE_CHECK(ConfigError, config.architecture == Architecture::kSteppedMoe,
             "model.architecture: found {}; the model must be a stepped_moe, of which the others are made",
             enum_to_name(config.architecture));
  SMOE_CHECK(ConfigError,
             options.dtype == TrainDtype::kFloat32 || (config.dim % 8 == 0 && config.expert_dim % 8 == 0),
             "model.dim is {} and model.expert_dim is {}; bf16 needs multiples of 8", config.dim,
             config.expert_dim);
}

}  // namespace

std::vector<DeviceBenchRow> run_device_bench(const DeviceBenchOptions& options,
                                             const std::function<void(const DeviceBenchRow&)>& on_row) {
  check_options(options);
  std::vector<DeviceBenchRow> rows;
  const RowSink sink = [&](const Subject& subject) {
    rows.push_back(measure(subject, options));
    on_row(rows.back());
  };
  bench_attention(options, sink);
  bench_routed_experts(options, sink);
  for (const Architecture architecture :
       {Architecture::kSteppedMoe, Architecture::kDense, Architecture::kVanillaMoe}) {
    bench_architecture(options, architecture, sink);
  }
  return rows;
}

std::string device_bench_table(const std::vector<DeviceBenchRow>& rows) {
  Table table({"", "ms", "tokens/s", "TFLOP/s", "MFU", "peak GiB"});
  const auto shown = [](double value, const char* format) {
    return value == 0.0 ? std::string("-") : fmt::format(fmt::runtime(format), value);
  };
  for (const DeviceBenchRow& row : rows) {
    table.add_row({row.name, fmt::format("{:.3f}", row.milliseconds), shown(row.tokens_per_s, "{:.0f}"),
                   shown(row.tflops, "{:.2f}"), shown(100.0 * row.mfu, "{:.1f} %"),
                   fmt::format("{:.2f}", static_cast<double>(row.peak_memory_bytes) / (1 << 30))});
  }
  return table.to_terminal();
}

std::string device_bench_json(const DeviceBenchOptions& options, const std::vector<DeviceBenchRow>& rows) {
  nlohmann::ordered_json document = {
      {"device", options.device.str()},     {"dtype", enum_to_name(options.dtype)},
      {"sequences", options.sequences},     {"sequence_length", options.sequence_length},
      {"peak_tflops", options.peak_tflops}, {"rows", nlohmann::ordered_json::array()}};
  for (const DeviceBenchRow& row : rows) {
    document["rows"].push_back({{"name", row.name},
                                {"milliseconds", row.milliseconds},
                                {"tokens_per_s", row.tokens_per_s},
                                {"tflops", row.tflops},
                                {"mfu", row.mfu},
                                {"peak_memory_bytes", row.peak_memory_bytes}});
  }
  return document.dump(2) + "\n";
}

}  // namespace smoe
