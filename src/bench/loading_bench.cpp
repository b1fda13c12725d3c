#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "smoe/bench/data_bench.h"
#include "smoe/core/error.h"
#include "smoe/core/random.h"
#include "smoe/data/indexed_dataset_writer.h"
#include "smoe/data/token_store.h"
#include "smoe/data/training_data.h"

namespace smoe {
namespace {

constexpr const char* kTokenizerHash = "random ids of smoe-bench data";
constexpr uint64_t kLongestDocument = 4000;

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::filesystem::path& parent)
      : path_(parent / fmt::format("smoe-bench-data-{}", ::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Documents of 1 to kLongestDocument ids, as uneven as real ones.
void write_random_store(const std::filesystem::path& prefix, const LoadingBenchOptions& options,
                        int64_t num_tokens, uint64_t seed) {
  const TokenType type = smallest_token_type(options.vocab_size);
  IndexedDatasetWriter writer(prefix, type);
  SplitMix64 random(seed);
  std::vector<int32_t> ids;
  while (writer.num_tokens() < num_tokens) {
    ids.resize(1 + random.below(kLongestDocument));
    for (int32_t& id : ids)
      id = static_cast<int32_t>(random.below(static_cast<uint64_t>(options.vocab_size)));
    writer.add_document(ids);
  }
  writer.finish();
  writer.commit();
  TokenStoreInfo info;
  info.tokenizer_hash = kTokenizerHash;
  info.vocab_size = options.vocab_size;
  info.token_type = token_type_name(type);
  info.documents = writer.num_documents();
  info.tokens = writer.num_tokens();
  info.bin_bytes = writer.bin_bytes();
  info.idx_bytes = writer.idx_bytes();
  info.bin_sha256 = writer.bin_sha256();
  info.idx_sha256 = writer.idx_sha256();
  write_token_store_info(prefix, info);
}

// Asks the system to drop the pages of a file that nobody has mapped. It keeps those of a file system in
// memory.
void drop_pages(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  SMOE_CHECK(DataError, descriptor >= 0, "{}: cannot be opened to drop its pages", file.string());
  ::fdatasync(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

DataConfig mixture_of(const std::vector<std::filesystem::path>& stores, const LoadingBenchOptions& options,
                      SequenceKind sequences) {
  DataConfig config;
  config.sequence_length = options.sequence_length;
  config.sequences = sequences;
  config.seed = static_cast<int64_t>(options.seed);
  config.train = {{"large", stores[0].string(), 3.0}, {"small", stores[1].string(), 1.0}};
  return config;
}

// The rows of one kind, read from the beginning in every repetition.
struct Reading {
  DataConfig config;
  int64_t vocab_size = 0;
  std::optional<TrainingData> data;

  void open() { data.emplace(config, kTokenizerHash, vocab_size); }
  void read(int64_t steps, int64_t rows_per_step) const {
    for (int64_t step = 0; step < steps; ++step) data->rows(step * rows_per_step, rows_per_step);
  }
};

double tokens_per_core_s(const SpeedRow& row) {
  return static_cast<double>(row.unique_tokens) / row.samples.median().core_s;
}

}  // namespace

SpeedReport run_loading_bench(const LoadingBenchOptions& options) {
  const ScratchFolder scratch(options.work_folder);
  const std::vector<std::filesystem::path> stores = {scratch.path() / "large", scratch.path() / "small"};
  write_random_store(stores[0], options, options.store_tokens * 3 / 4, options.seed);
  write_random_store(stores[1], options, options.store_tokens / 4, options.seed + 1);
  SpeedReport report;
  report.num_threads = 1;
  std::vector<Contestant> contestants;
  for (const SequenceKind kind : {SequenceKind::kStream, SequenceKind::kPacked}) {
    for (const bool is_cold : {false, true}) {
      SpeedRow row;
      row.bench = "data";
      row.name = "load";
      row.unique_tokens = options.steps * options.rows_per_step * options.sequence_length;
      row.labels = {{"sequences", std::string(enum_to_name(kind))}, {"pages", is_cold ? "cold" : "warm"}};
      report.rows.push_back(row);
      const auto reading = std::make_shared<Reading>();
      reading->config = mixture_of(stores, options, kind);
      reading->vocab_size = options.vocab_size;
      contestants.push_back({row.name,
                             [reading, &options] {
                               reading->read(options.steps, options.rows_per_step);
                               reading->data.reset();  // a mapping would keep its pages
                             },
                             [reading, &stores, is_cold] {
                               reading->open();
                               if (!is_cold) return;
                               reading->data.reset();
                               for (const std::filesystem::path& store : stores)
                                 drop_pages(with_suffix(store, ".bin"));
                               reading->open();
                             }});
    }
  }
  std::vector<Samples> samples = measure_in_turns(contestants, options.repetitions);
  for (size_t i = 0; i < samples.size(); ++i) report.rows[i].samples = std::move(samples[i]);
  return report;
}

LoadingShare loading_share(const SpeedReport& loading, const SpeedReport& training) {
  LoadingShare share{tokens_per_core_s(training.rows.at(0)), std::numeric_limits<double>::infinity()};
  for (const SpeedRow& row : loading.rows) {
    if (row.labels.at("pages") != "warm") continue;
    share.loading_tokens_per_core_s = std::min(share.loading_tokens_per_core_s, tokens_per_core_s(row));
  }
  return share;
}

}  // namespace smoe
