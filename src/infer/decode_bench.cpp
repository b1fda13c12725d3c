#include "smoe/infer/decode_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "smoe/core/error.h"
#include "smoe/core/json.h"
#include "smoe/core/random.h"
#include "smoe/core/table.h"
#include "smoe/infer/decode_batch.h"
#include "smoe/infer/latency_study.h"
#include "smoe/infer/streaming_export.h"
#include "smoe/infer/streaming_model.h"
#include "smoe/model/device.h"
#include "smoe/model/parameter_counts.h"
#include "smoe/routing/budgets.h"

namespace smoe {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;
constexpr int64_t kDiskProbeBytes = int64_t{256} << 20;
constexpr int64_t kDiskProbeBatch = 64;

double real(int64_t value) { return static_cast<double>(value); }

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// Removes a package when it is not needed any more.
class ScratchPackage {
 public:
  explicit ScratchPackage(std::filesystem::path path) : path_(std::move(path)) {}
  ~ScratchPackage() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchPackage(const ScratchPackage&) = delete;
  ScratchPackage& operator=(const ScratchPackage&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Values of the size that initialisation gives, quickly: only speed matters here.
Model random_model(const ModelConfig& config) {
  Model model(config, at::kCPU);
  const at::NoGradGuard no_gradients;
  for (const NamedParameter& parameter : model.parameters()) {
    at::Tensor tensor = parameter.tensor;
    tensor.set_requires_grad(false);
    if (parameter.kind == ParameterKind::kNorm) {
      tensor.fill_(1.0);
    } else if (parameter.kind == ParameterKind::kBuffer || parameter.name == "size_embedding.weight") {
      // A random vector that all tokens share would make their choices of experts alike.
      tensor.zero_();
    } else {
      const double range = std::sqrt(3.0 / real(tensor.size(-1)));
      tensor.uniform_(-range, range);
    }
  }
  return model;
}

// Bytes a second of expert blocks in random order, `batch` of them asked for at a time.
double measure_disk(const StreamingPackage& package, const ExpertReaderConfig& config, int64_t batch) {
  const int64_t block_bytes = package.layout().block_bytes;
  const int64_t num_blocks = package.num_moe_layers() * package.num_experts();
  const int64_t count =
      std::clamp<int64_t>(kDiskProbeBytes / block_bytes, batch, std::max(batch, num_blocks));
  std::mutex mutex;
  std::condition_variable changed;
  int64_t num_done = 0, num_failed = 0;
  const std::unique_ptr<void, void (*)(void*)> memory(
      std::aligned_alloc(kExpertBlockAlignment, static_cast<size_t>(batch * block_bytes)), &std::free);
  const auto reader = make_block_reader(package.experts_path(), config);
  reader->set_completion([&](uint64_t, int error) {
    const std::lock_guard lock(mutex);
    ++num_done;
    num_failed += error != 0 ? 1 : 0;
    changed.notify_all();
  });
  const Permutation order(static_cast<uint64_t>(num_blocks), 17);
  const auto read_batch = [&](int64_t begin, int64_t end) {
    std::vector<BlockRead> reads;
    for (int64_t i = begin; i < end; ++i) {
      const auto block = static_cast<int64_t>(order(static_cast<uint64_t>(i % num_blocks)));
      reads.push_back({static_cast<uint64_t>(i), block * block_bytes, block_bytes,
                       static_cast<std::byte*>(memory.get()) + (i - begin) * block_bytes});
    }
    reader->start(reads);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return num_done == static_cast<int64_t>(reads.size()); });
    num_done = 0;
  };
  read_batch(0, batch);  // touches the memory
  const Stopwatch watch;
  for (int64_t begin = 0; begin < count; begin += batch) read_batch(begin, std::min(begin + batch, count));
  SMOE_CHECK(DataError, num_failed == 0, "{}: {} blocks could not be read", package.experts_path().string(),
             num_failed);
  return real(count * block_bytes) / watch.seconds();
}

// One row of tokens going through a model.
class TokenRun {
 public:
  TokenRun(const Model& model, int64_t budget, int64_t segment_length, uint64_t seed)
      : batch_(model), random_(seed), vocab_size_(static_cast<uint64_t>(model.config().vocab_size)) {
    DecodeRow row;
    row.budget = budget;
    row.routing.segment_length = segment_length;
    const Stopwatch watch;
    batch_.prefill({{next_token()}}, {row}, 512);
    prefill_s_ = watch.seconds();
  }

  void decode(int64_t num_tokens) {
    for (int64_t i = 0; i < num_tokens; ++i) batch_.decode({next_token()});
  }
  double prefill_s() const { return prefill_s_; }

 private:
  int32_t next_token() { return static_cast<int32_t>(random_.below(vocab_size_)); }

  DecodeBatch batch_;
  SplitMix64 random_;
  uint64_t vocab_size_;
  double prefill_s_ = 0;
};

class DecodeBench {
 public:
  DecodeBench(const DecodeBenchOptions& options, const std::function<void(const std::string&)>& progress)
      : options_(options), progress_(progress) {
    SMOE_CHECK(ConfigError, options.model.architecture == Architecture::kSteppedMoe,
               "the decoding benchmark needs a stepped_moe, found architecture {}",
               enum_to_name(options.model.architecture));
    for (const std::string& budget : options.budgets)
      budgets_.push_back(find_budget(options.model.budgets, budget));
    if (budgets_.empty()) {
      for (int64_t i = 0; i < std::ssize(options.model.budgets); ++i) budgets_.push_back(i);
    }
  }

  DecodeBenchReport run() {
    for (const int64_t budget : budgets_) run_dense(budget);
    run_moe(Architecture::kSteppedMoe);
    run_moe(Architecture::kVanillaMoe);
    return report_;
  }

 private:
  const BudgetConfig& budget_config(int64_t budget) const {
    return options_.model.budgets[static_cast<size_t>(budget)];
  }
  double dense_ms(int64_t budget) const {
    for (const DecodeBenchRow& row : report_.rows) {
      if (row.model == "dense" && row.budget == budget_config(budget).name) return row.ms_per_token;
    }
    return 0;
  }

  void run_dense(int64_t budget) {
    ModelConfig config = options_.model;
    const double active =
        real(count_parameters(config, 1).budgets[static_cast<size_t>(budget)].active_non_embedding);
    config.architecture = Architecture::kDense;
    config.dense_ffn_dim = solve_dense_ffn_dim(options_.model, active);
    config.num_dense_layers = options_.model.num_layers();
    config.num_moe_layers = 0;
    progress_(fmt::format("dense model of {:.1f}M active parameters (budget {})", active / 1e6,
                          budget_config(budget).name));
    const Model model = random_model(config);
    TokenRun run(model, 0, 1, options_.seed);
    run.decode(8);
    const Stopwatch watch;
    run.decode(options_.num_tokens);
    DecodeBenchRow row{.model = "dense", .budget = budget_config(budget).name};
    row.num_tokens = options_.num_tokens;
    row.prefill_ms = 1e3 * run.prefill_s();
    row.ms_per_token = 1e3 * watch.seconds() / real(row.num_tokens);
    row.peak_memory_bytes = peak_memory_bytes(at::kCPU);
    report_.rows.push_back(row);
  }

  void run_moe(Architecture architecture) {
    const std::string name = architecture == Architecture::kSteppedMoe ? "stepped" : "vanilla";
    ModelConfig config = options_.model;
    config.architecture = architecture;
    const ScratchPackage scratch(options_.work_folder / ("smoe-bench-" + name));
    progress_(fmt::format("writing the {} package to {}", name, scratch.path().string()));
    export_streaming_package(random_model(config), scratch.path(), options_.encoding);
    const StreamingPackage package(scratch.path());
    if (report_.disk_bytes_per_s == 0) {
      report_.block_bytes = package.layout().block_bytes;
      report_.disk_bytes_per_s = measure_disk(package, options_.store.reader, kDiskProbeBatch);
      progress_(fmt::format("disk: {:.0f} MB/s", report_.disk_bytes_per_s / 1e6));
    }
    for (const int64_t budget : budgets_) {
      for (const int64_t limit : options_.memory_limits) {
        const std::vector<int64_t> lengths =
            name == "stepped" ? options_.segment_lengths : std::vector<int64_t>{1};
        for (const int64_t length : lengths) run_streamed(package, name, budget, limit, length);
      }
    }
  }

  void run_streamed(const StreamingPackage& package, const std::string& name, int64_t budget, int64_t limit,
                    int64_t length) {
    const int64_t k = budget_config(budget).experts_per_layer;
    const int64_t choice_bytes = k * package.num_moe_layers() * package.layout().block_bytes;
    const int64_t memory = limit > 0 ? limit : choice_bytes;
    if (memory < options_.model.budgets.back().experts_per_layer * package.layout().block_bytes) {
      progress_(fmt::format("{} {}: {:.0f} MiB cannot hold one layer; left out", name,
                            budget_config(budget).name, real(memory) / kMebibyte));
      return;
    }
    progress_(fmt::format("{} {} S={} with {:.0f} MiB", name, budget_config(budget).name, length,
                          real(memory) / kMebibyte));
    const StreamingModel streaming = open_streaming_model({package.folder(), memory, options_.store});
    const bool stepped = name == "stepped";
    TokenRun run(streaming.model, budget, length, options_.seed);
    // Up to the border of a segment, so that whole segments are measured.
    run.decode(stepped ? 2 * length - 1 : 3);
    streaming.experts->reset_statistics();
    DecodeBenchRow row{.model = name, .budget = budget_config(budget).name};
    row.num_tokens = stepped ? (options_.num_tokens + length - 1) / length * length : options_.vanilla_tokens;
    const Stopwatch watch;
    run.decode(row.num_tokens);
    row.ms_per_token = 1e3 * watch.seconds() / real(row.num_tokens);
    row.prefill_ms = 1e3 * run.prefill_s();
    row.segment_length = stepped ? length : 0;
    row.memory_bytes = streaming.experts->slot_bytes();
    const StreamingStatistics statistics = streaming.experts->statistics();
    // As many blocks as a choice misses are asked for together: few at a time are slower.
    const int64_t batch = std::max<int64_t>(
        1, (statistics.selected - statistics.hits) / std::max<int64_t>(1, statistics.num_choices));
    row.disk_bytes_per_s = measure_disk(package, options_.store.reader, batch);
    fill_streaming(row, statistics, budget, row.memory_bytes >= choice_bytes);
    report_.rows.push_back(row);
  }

  void fill_streaming(DecodeBenchRow& row, const StreamingStatistics& statistics, int64_t budget,
                      bool choice_fits) const {
    row.times_dense = row.ms_per_token / dense_ms(budget);
    row.stall_ms = 1e3 * statistics.stall_s / real(row.num_tokens);
    row.hit_rate = statistics.hit_rate();
    row.bytes_per_token = real(statistics.bytes_read) / real(row.num_tokens);
    row.bound_ms = 1e3 * row.bytes_per_token / row.disk_bytes_per_s;
    row.peak_memory_bytes = peak_memory_bytes(at::kCPU);
    if (row.model == "vanilla" || choice_fits) row.predicted_ms = predict(row, budget);
  }

  // The parts of a token share its time without stalls as their weights share its weights.
  double predict(const DecodeBenchRow& row, int64_t budget) const {
    const bool vanilla = row.model == "vanilla";
    const LatencyHardware even{.memory_bandwidth = 1e9, .storage_bandwidth = 1e9, .kv_bits = 0};
    DecodeCosts costs = moe_costs(options_.model, budget_config(budget).experts_per_layer, vanilla, even);
    const double layers = real(costs.num_moe_layers);
    const double weights = costs.backbone_s + layers * (costs.attention_s + costs.experts_s) + costs.head_s;
    const double scale = 1e-3 * (row.ms_per_token - row.stall_ms) / weights;
    for (double* part : {&costs.backbone_s, &costs.attention_s, &costs.experts_s, &costs.head_s})
      *part *= scale;
    costs.choice_s = 0;  // is in the measured time already
    const double tokens_per_choice = vanilla ? 1.0 : real(row.segment_length);
    costs.load_s = row.bytes_per_token * tokens_per_choice / layers / row.disk_bytes_per_s;
    DecodeScenario scenario;
    scenario.loading = vanilla ? ExpertLoading::kPerToken : ExpertLoading::kPerSegment;
    scenario.segment_length = std::max<int64_t>(row.segment_length, 1);
    scenario.num_tokens = row.num_tokens;
    return 1e3 * simulate_decode(costs, scenario).total_s() / real(row.num_tokens);
  }

  const DecodeBenchOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  std::vector<int64_t> budgets_;
  DecodeBenchReport report_;
};

}  // namespace

DecodeBenchReport run_decode_bench(const DecodeBenchOptions& options,
                                   const std::function<void(const std::string&)>& progress) {
  return DecodeBench(options, progress).run();
}

std::string decode_bench_table(const DecodeBenchReport& report) {
  Table table({"model", "budget", "S", "experts MiB", "ms/token", "tokens/s", "x dense", "stall ms", "hit %",
               "MiB/token", "disk MB/s", "bound ms", "predicted ms", "off %"});
  std::string previous;
  for (const DecodeBenchRow& row : report.rows) {
    if (!previous.empty() && previous != row.model + row.budget) table.add_separator();
    previous = row.model + row.budget;
    std::vector<std::string> cells = {row.model, row.budget};
    const bool streamed = row.memory_bytes > 0;
    cells.push_back(row.segment_length > 0 ? fmt::format("{}", row.segment_length) : "");
    cells.push_back(streamed ? fmt::format("{:.0f}", real(row.memory_bytes) / kMebibyte) : "");
    cells.push_back(fmt::format("{:.2f}", row.ms_per_token));
    cells.push_back(fmt::format("{:.1f}", 1e3 / row.ms_per_token));
    cells.push_back(fmt::format("{:.2f}", row.times_dense));
    if (streamed) {
      cells.push_back(fmt::format("{:.2f}", row.stall_ms));
      cells.push_back(fmt::format("{:.1f}", 100.0 * row.hit_rate));
      cells.push_back(fmt::format("{:.2f}", row.bytes_per_token / kMebibyte));
      cells.push_back(fmt::format("{:.0f}", row.disk_bytes_per_s / 1e6));
      cells.push_back(fmt::format("{:.2f}", row.bound_ms));
    }
    if (row.predicted_ms) {
      cells.push_back(fmt::format("{:.2f}", *row.predicted_ms));
      cells.push_back(fmt::format("{:+.1f}", 100.0 * (*row.predicted_ms / row.ms_per_token - 1.0)));
    }
    table.add_row(std::move(cells));
  }
  return fmt::format("disk: {:.0f} MB/s in blocks of {:.3f} MiB\n{}", report.disk_bytes_per_s / 1e6,
                     real(report.block_bytes) / kMebibyte, table.to_terminal());
}

std::string decode_bench_json_lines(const DecodeBenchReport& report) {
  std::string text;
  for (const DecodeBenchRow& row : report.rows) {
    nlohmann::ordered_json json = {{"model", row.model},
                                   {"budget", row.budget},
                                   {"segment_length", row.segment_length},
                                   {"memory_bytes", row.memory_bytes},
                                   {"num_tokens", row.num_tokens},
                                   {"prefill_ms", row.prefill_ms},
                                   {"ms_per_token", row.ms_per_token},
                                   {"times_dense", row.times_dense},
                                   {"stall_ms", row.stall_ms},
                                   {"hit_rate", row.hit_rate},
                                   {"bytes_per_token", row.bytes_per_token},
                                   {"bound_ms", row.bound_ms},
                                   {"peak_memory_bytes", row.peak_memory_bytes},
                                   {"disk_bytes_per_s", row.disk_bytes_per_s}};
    json["predicted_ms"] = row.predicted_ms ? nlohmann::ordered_json(*row.predicted_ms) : nullptr;
    text += json.dump() + "\n";
  }
  return text;
}

}  // namespace smoe
