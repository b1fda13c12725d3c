#include "smoe/infer/decode_bench.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "decode_probes.h"
#include "smoe/core/error.h"
#include "smoe/infer/latency_study.h"
#include "smoe/infer/streaming_export.h"
#include "smoe/infer/streaming_model.h"
#include "smoe/model/device.h"
#include "smoe/model/parameter_counts.h"
#include "smoe/routing/budgets.h"
#include "stock_decoder.h"

namespace smoe {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;
constexpr int64_t kDiskProbeBatch = 64;

double real(int64_t value) { return static_cast<double>(value); }

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
      tensor.copy_((2.0 * at::rand_like(tensor) - 1.0) * range);
    }
  }
  return model;
}

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
    make_dense_models();
    for (int64_t index = 0; index < std::ssize(budgets_); ++index) run_resident(index);
    stepped_.reset();
    if (options_.memory_limits.empty()) return std::move(report_);
    run_streamed(Architecture::kSteppedMoe);
    run_streamed(Architecture::kVanillaMoe);
    return std::move(report_);
  }

 private:
  // One row under way: it, the dense model of its size, and the memory take turns, so that what else the
  // machine does hits all of them.
  struct Turns {
    double row_s = 0;
    double dense_s = 0;
    int64_t row_tokens = 0;
    int64_t dense_tokens = 0;
    double memory_s = 0;
    int64_t memory_bytes = 0;
  };

  const BudgetConfig& budget_config(int64_t index) const {
    return options_.model.budgets[static_cast<size_t>(budgets_[static_cast<size_t>(index)])];
  }

  Model random_encoded_model(const ModelConfig& config) const {
    Model model = random_model(config);
    model.encode_weights(options_.resident_encoding);
    return model;
  }

  void make_dense_models() {
    for (int64_t index = 0; index < std::ssize(budgets_); ++index) {
      ModelConfig config = options_.model;
      const auto budget = static_cast<size_t>(budgets_[static_cast<size_t>(index)]);
      const double active = real(count_parameters(config, 1).budgets[budget].active_non_embedding);
      config.architecture = Architecture::kDense;
      config.dense_ffn_dim = solve_dense_ffn_dim(options_.model, active);
      config.num_dense_layers = options_.model.num_layers();
      config.num_moe_layers = 0;
      progress_(fmt::format("dense model of {:.1f}M active parameters (budget {})", active / 1e6,
                            budget_config(index).name));
      dense_.push_back(random_encoded_model(config));
    }
  }

  template <class Run, class AfterTurn>
  Turns take_turns(Run& run, int64_t num_turns, int64_t tokens_a_turn, TokenRun& dense,
                   const AfterTurn& after_turn) {
    Turns turns;
    for (int64_t turn = 0; turn < num_turns; ++turn) {
      turns.row_s += run.decode(tokens_a_turn);
      turns.row_tokens += tokens_a_turn;
      after_turn();
      const int64_t dense_tokens = std::min<int64_t>(tokens_a_turn, 32);
      turns.dense_s += dense.decode(dense_tokens);
      turns.dense_tokens += dense_tokens;
      turns.memory_s += memory_.read();
      turns.memory_bytes += memory_.num_bytes();
    }
    report_.memory_bytes_per_s =
        std::max(report_.memory_bytes_per_s, real(turns.memory_bytes) / turns.memory_s);
    return turns;
  }

  TokenRun warm_run(const Model& model, int64_t budget, int64_t segment_length, int64_t num_rows = 1) const {
    TokenRun run(model, budget, segment_length, options_.seed, num_rows);
    run.decode(8);
    return run;
  }

  void fill_times(DecodeBenchRow& row, const Turns& turns) const {
    const double batch = real(row.batch);
    row.num_tokens = turns.row_tokens;
    row.ms_per_token = 1e3 * turns.row_s / real(turns.row_tokens) / batch;
    row.dense_ms_per_token = 1e3 * turns.dense_s / real(turns.dense_tokens) / batch;
    row.times_dense = row.ms_per_token / row.dense_ms_per_token;
    row.memory_bytes_per_s = real(turns.memory_bytes) / turns.memory_s;
    row.peak_memory_bytes = peak_memory_bytes(at::kCPU);
  }

  int64_t num_turns(int64_t tokens_a_turn) const {
    return std::max<int64_t>(2, (options_.num_tokens + tokens_a_turn - 1) / tokens_a_turn);
  }

  // Dense and stepped models with all weights in memory, for every number of rows.
  void run_resident(int64_t index) {
    const Model& dense = dense_[static_cast<size_t>(index)];
    if (!stepped_) stepped_.emplace(random_encoded_model(options_.model));
    for (const int64_t batch : options_.batch_sizes) {
      progress_(fmt::format("in memory: budget {}, {} rows", budget_config(index).name, batch));
      TokenRun dense_run = warm_run(dense, 0, 1, batch);
      const auto nothing = [] {};
      DecodeBenchRow row{.model = "dense", .budget = budget_config(index).name, .batch = batch};
      TokenRun other = warm_run(dense, 0, 1, batch);
      fill_times(row, take_turns(dense_run, num_turns(32), 32, other, nothing));
      row.times_dense = 1;
      row.active_bytes = active_bytes(index, "dense");
      report_.rows.push_back(row);

      const int64_t length = options_.model.routing.segment_length;
      TokenRun stepped_run = warm_run(*stepped_, budgets_[static_cast<size_t>(index)], length, batch);
      DecodeBenchRow stepped{.model = "stepped", .budget = budget_config(index).name, .batch = batch};
      stepped.segment_length = length;
      fill_times(stepped, take_turns(stepped_run, num_turns(length), length, other, nothing));
      stepped.active_bytes = active_bytes(index, "resident");
      report_.rows.push_back(stepped);
      if (batch == 1 && options_.stock) run_stock(index, stepped_run, other);
    }
  }

  // The same decoding composed of LibTorch's operators.
  void run_stock(int64_t index, TokenRun& stepped_run, TokenRun& dense_run) {
    if (!StockDecoder::supports(options_.model)) {
      progress_("this router has no composition of LibTorch's operators; left out");
      return;
    }
    const int64_t length = options_.model.routing.segment_length;
    for (const StockDecoding decoding :
         {StockDecoding::kGatheredByToken, StockDecoding::kGathered, StockDecoding::kLooped}) {
      StockDecoder stock(*stepped_, budgets_[static_cast<size_t>(index)], length, decoding);
      stock.decode(length);
      DecodeBenchRow row{.model = stock_decoding_name(decoding), .budget = budget_config(index).name};
      row.segment_length = length;
      double stepped_s = 0;
      fill_times(row, take_turns(stock, num_turns(length), length, dense_run,
                                 [&] { stepped_s += stepped_run.decode(length); }));
      row.stepped_ms_per_token = 1e3 * stepped_s / real(row.num_tokens);
      row.times_stepped = row.ms_per_token / row.stepped_ms_per_token;
      row.active_bytes = active_bytes(index, "stock");
      report_.rows.push_back(row);
    }
  }

  // Bytes of the weights that one token reads, the head included.
  double active_bytes(int64_t index, const std::string& kind) const {
    const LatencyHardware even{
        .memory_bandwidth = 1e9, .storage_bandwidth = 1e9, .weight_bits = 8, .kv_bits = 0};
    if (kind == "dense") {
      const double dense_byte = real(value_bytes(options_.resident_encoding));
      const auto budget = static_cast<size_t>(budgets_[static_cast<size_t>(index)]);
      const double parameters =
          real(count_parameters(options_.model, 1).budgets[budget].active_non_embedding);
      return (parameters + real(options_.model.vocab_size * options_.model.dim)) * dense_byte;
    }
    const bool vanilla = kind == "vanilla";
    const double resident_byte = kind == "stock" ? 4.0 : real(value_bytes(options_.resident_encoding));
    const double expert_byte =
        kind == "resident" || kind == "stock" ? resident_byte : real(value_bytes(options_.encoding));
    const DecodeCosts costs =
        moe_costs(options_.model, budget_config(index).experts_per_layer, vanilla, even);
    const double layers = real(costs.num_moe_layers);
    const double routed = layers * real(budget_config(index).experts_per_layer) * 3.0 *
                          real(options_.model.dim * options_.model.expert_dim);
    const double all =
        1e9 * (costs.backbone_s + layers * (costs.attention_s + costs.experts_s) + costs.head_s);
    return (all - routed) * resident_byte + routed * expert_byte;
  }

  static int64_t value_bytes(ExpertEncoding encoding) {
    return encoding == ExpertEncoding::kFloat32 ? 4 : encoding == ExpertEncoding::kBfloat16 ? 2 : 1;
  }

  void run_streamed(Architecture architecture) {
    const bool stepped = architecture == Architecture::kSteppedMoe;
    const std::string name = stepped ? "stepped" : "vanilla";
    ModelConfig config = options_.model;
    config.architecture = architecture;
    const ScratchPackage scratch(options_.work_folder / ("smoe-bench-" + name));
    progress_(fmt::format("writing the {} package to {}", name, scratch.path().string()));
    export_streaming_package(random_model(config), scratch.path(), options_.encoding);
    const StreamingPackage package(scratch.path());
    DiskProbe disk(package, options_.store.reader);
    if (report_.disk_bytes_per_s == 0) {
      report_.block_bytes = package.layout().block_bytes;
      disk.read({kDiskProbeBatch});  // touches the memory
      const std::vector<int64_t> groups(4, kDiskProbeBatch);
      report_.disk_bytes_per_s = real(4 * kDiskProbeBatch * report_.block_bytes) / disk.read(groups);
      progress_(fmt::format("disk: {:.0f} MB/s", report_.disk_bytes_per_s / 1e6));
    }
    for (int64_t index = 0; index < std::ssize(budgets_); ++index) {
      for (const int64_t limit : options_.memory_limits) {
        const std::vector<int64_t> lengths = stepped ? options_.segment_lengths : std::vector<int64_t>{1};
        for (const int64_t length : lengths) run_row(package, disk, name, index, limit, length);
      }
    }
  }

  void run_row(const StreamingPackage& package, DiskProbe& disk, const std::string& name, int64_t index,
               int64_t limit, int64_t length) {
    const int64_t k = budget_config(index).experts_per_layer;
    const int64_t choice_bytes = k * package.num_moe_layers() * package.layout().block_bytes;
    const int64_t memory = limit > 0 ? limit : choice_bytes;
    if (memory < options_.model.budgets.back().experts_per_layer * package.layout().block_bytes) {
      progress_(fmt::format("{} {}: {:.0f} MiB cannot hold one layer; left out", name,
                            budget_config(index).name, real(memory) / kMebibyte));
      return;
    }
    progress_(fmt::format("{} {} S={} with {:.0f} MiB", name, budget_config(index).name, length,
                          real(memory) / kMebibyte));
    StreamingModel streaming = open_streaming_model({package.folder(), memory, options_.store});
    streaming.model.encode_weights(options_.resident_encoding);
    const bool stepped = name == "stepped";
    TokenRun run(streaming.model, budgets_[static_cast<size_t>(index)], length, options_.seed);
    // Up to the border of a segment, so that whole segments are measured.
    run.decode(stepped ? 2 * length - 1 : 3);
    TokenRun dense = warm_run(dense_[static_cast<size_t>(index)], 0, 1);
    streaming.experts->reset_statistics();
    disk.use_memory(streaming.experts->num_slots());
    // After each turn the disk alone repeats the reads of the turn, as many together as were asked for.
    double replay_s = 0;
    size_t num_replayed = 0;
    const auto replay = [&] {
      const std::vector<RefreshRecord> records = streaming.experts->refreshes();
      std::vector<int64_t> misses;
      for (; num_replayed < records.size(); ++num_replayed) {
        // A choice that does not fit is read in parts, again at every token.
        int64_t left = records[num_replayed].bytes_read / package.layout().block_bytes;
        for (; left > 0; left -= streaming.experts->num_slots()) {
          misses.push_back(std::min(left, streaming.experts->num_slots()));
        }
      }
      replay_s += disk.read(misses);
    };
    const int64_t tokens_a_turn = stepped ? length : std::max<int64_t>(1, options_.vanilla_tokens / 16);
    const Turns turns = take_turns(run, stepped ? num_turns(length) : 16, tokens_a_turn, dense, replay);
    DecodeBenchRow row{.model = name, .budget = budget_config(index).name};
    fill_times(row, turns);
    row.prefill_ms = 1e3 * run.prefill_s();
    row.segment_length = stepped ? length : 0;
    row.slot_bytes = streaming.experts->slot_bytes();
    row.active_bytes = active_bytes(index, name);
    fill_streaming(row, streaming.experts->statistics(), replay_s);
    if (!stepped || row.slot_bytes >= choice_bytes) predict(row, index);
    report_.rows.push_back(row);
  }

  void fill_streaming(DecodeBenchRow& row, const StreamingStatistics& statistics, double replay_s) const {
    row.stall_ms = 1e3 * statistics.stall_s / real(row.num_tokens);
    row.hit_rate = statistics.hit_rate();
    row.bytes_per_token = real(statistics.bytes_read) / real(row.num_tokens);
    row.bound_ms = 1e3 * replay_s / real(row.num_tokens);
    row.disk_bytes_per_s = replay_s > 0 ? real(statistics.bytes_read) / replay_s : 0.0;
  }

  // The parts of a token share its time without stalls as their weights share its weights.
  void predict(DecodeBenchRow& row, int64_t index) const {
    const bool vanilla = row.model == "vanilla";
    const LatencyHardware even{.memory_bandwidth = 1e9, .storage_bandwidth = 1e9, .kv_bits = 0};
    DecodeCosts costs = moe_costs(options_.model, budget_config(index).experts_per_layer, vanilla, even);
    const double layers = real(costs.num_moe_layers);
    const double weights = costs.backbone_s + layers * (costs.attention_s + costs.experts_s) + costs.head_s;
    const double scale = 1e-3 * (row.ms_per_token - row.stall_ms) / weights;
    for (double* part : {&costs.backbone_s, &costs.attention_s, &costs.experts_s, &costs.head_s})
      *part *= scale;
    costs.choice_s = 0;  // is in the measured time already
    const double tokens_per_choice = vanilla ? 1.0 : real(row.segment_length);
    costs.load_s = 1e-3 * row.bound_ms * tokens_per_choice / layers;
    DecodeScenario scenario;
    scenario.loading = vanilla ? ExpertLoading::kPerToken : ExpertLoading::kPerSegment;
    scenario.segment_length = std::max<int64_t>(row.segment_length, 1);
    scenario.num_tokens = row.num_tokens;
    const DecodeTimes times = simulate_decode(costs, scenario);
    row.predicted_ms = 1e3 * times.total_s() / real(row.num_tokens);
    row.predicted_stall_ms = 1e3 * times.stall_s / real(row.num_tokens);
  }

  const DecodeBenchOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  std::vector<int64_t> budgets_;
  std::vector<Model> dense_;  // one a budget
  std::optional<Model> stepped_;
  MemoryProbe memory_;
  DecodeBenchReport report_;
};

}  // namespace

DecodeBenchReport run_decode_bench(const DecodeBenchOptions& options,
                                   const std::function<void(const std::string&)>& progress) {
  return DecodeBench(options, progress).run();
}

}  // namespace smoe
