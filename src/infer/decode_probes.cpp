#include "decode_probes.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <numeric>

#include "smoe/core/error.h"
#include "smoe/core/vector_clones.h"

namespace smoe {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// Four streams at a time, as the products of matrices with one vector read their rows.
SMOE_VECTOR_CLONES float sum_of(const float* values, int64_t count) {
  using Floats = float __attribute__((vector_size(64)));
  constexpr int64_t kLanes = 16, kStreams = 4;
  const int64_t stride = count / kStreams / kLanes * kLanes;
  Floats sums[kStreams] = {};
  for (int64_t i = 0; i < stride; i += kLanes) {
    for (int64_t s = 0; s < kStreams; ++s) {
      Floats lanes;
      __builtin_memcpy(&lanes, values + s * stride + i, sizeof(lanes));
      sums[s] += lanes;
    }
  }
  const Floats all = sums[0] + sums[1] + sums[2] + sums[3];
  float total = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) total += all[lane];
  return total;
}

}  // namespace

MemoryProbe::MemoryProbe(int64_t num_bytes) : values_(static_cast<size_t>(num_bytes) / sizeof(float), 1.0F) {}

double MemoryProbe::read() {
  const int64_t num_threads = at::get_num_threads();
  const int64_t share = std::ssize(values_) / num_threads;
  sums_.assign(static_cast<size_t>(num_threads), 0.0F);
  const Stopwatch watch;
  at::parallel_for(0, num_threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      sums_[static_cast<size_t>(thread)] = sum_of(values_.data() + thread * share, share);
    }
  });
  return watch.seconds();
}

struct DiskProbe::Arrivals {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t num_done = 0;
  int64_t num_failed = 0;
};

DiskProbe::DiskProbe(const StreamingPackage& package, const ExpertReaderConfig& config)
    : package_(package),
      arrivals_(std::make_shared<Arrivals>()),
      reader_(make_block_reader(package.experts_path(), config)),
      memory_(nullptr, &std::free) {
  reader_->set_completion([arrivals = arrivals_](uint64_t, int error) {
    const std::lock_guard lock(arrivals->mutex);
    ++arrivals->num_done;
    arrivals->num_failed += error != 0 ? 1 : 0;
    arrivals->changed.notify_all();
  });
}

void DiskProbe::use_memory(int64_t num_blocks) {
  const auto bytes = static_cast<size_t>(num_blocks * package_.layout().block_bytes);
  memory_.reset(std::aligned_alloc(kExpertBlockAlignment, bytes));
  SMOE_CHECK(DataError, memory_ != nullptr, "{} bytes of memory for the disk probe are not there", bytes);
  // Touched before the clock runs.
  std::fill_n(static_cast<std::byte*>(memory_.get()), bytes, std::byte{0});
  capacity_ = num_blocks;
  next_block_ = 0;
}

double DiskProbe::read(const std::vector<int64_t>& group_sizes) {
  const int64_t block_bytes = package_.layout().block_bytes;
  const int64_t num_blocks = package_.num_moe_layers() * package_.num_experts();
  const int64_t most = group_sizes.empty() ? 0 : std::ranges::max(group_sizes);
  if (most > capacity_) use_memory(most);
  const Stopwatch watch;
  for (const int64_t size : group_sizes) {
    if (size == 0) continue;
    std::vector<BlockRead> reads;
    for (int64_t i = 0; i < size; ++i) {
      const auto block = static_cast<int64_t>(random_.below(static_cast<uint64_t>(num_blocks)));
      reads.push_back({static_cast<uint64_t>(i), block * block_bytes, block_bytes,
                       static_cast<std::byte*>(memory_.get()) + next_block_ * block_bytes});
      next_block_ = (next_block_ + 1) % capacity_;
    }
    reader_->start(reads);
    std::unique_lock lock(arrivals_->mutex);
    arrivals_->changed.wait(lock, [&] { return arrivals_->num_done == size; });
    arrivals_->num_done = 0;
  }
  SMOE_CHECK(DataError, arrivals_->num_failed == 0, "{}: {} blocks could not be read",
             package_.experts_path().string(), arrivals_->num_failed);
  return watch.seconds();
}

TokenRun::TokenRun(const Model& model, int64_t budget, int64_t segment_length, uint64_t seed,
                   int64_t num_rows)
    : batch_(model), random_(seed), vocab_size_(static_cast<uint64_t>(model.config().vocab_size)) {
  DecodeRow row;
  row.budget = budget;
  row.routing.segment_length = segment_length;
  row.routing.selector_position = model.config().routing.selector_position;
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < num_rows; ++i) prompts.push_back({next_token()});
  const Stopwatch watch;
  batch_.prefill(prompts, std::vector<DecodeRow>(static_cast<size_t>(num_rows), row), 512);
  prefill_s_ = watch.seconds();
}

double TokenRun::decode(int64_t num_tokens) {
  const Stopwatch watch;
  std::vector<int32_t> tokens(static_cast<size_t>(batch_.num_rows()));
  for (int64_t i = 0; i < num_tokens; ++i) {
    for (int32_t& token : tokens) token = next_token();
    batch_.decode(tokens);
  }
  return watch.seconds();
}

int32_t TokenRun::next_token() { return static_cast<int32_t>(random_.below(vocab_size_)); }

}  // namespace smoe
