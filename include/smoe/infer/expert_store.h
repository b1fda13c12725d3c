// Routed experts streamed from a package into a fixed number of slots of memory, as the ExpertProvider of a
// model.
//
// When a forward pass has chosen its experts, the reads of everything that is missing start at once, in the
// order of the layers; each layer then waits for its own experts only, while those of later layers are still
// on their way. Where a choice is larger than the slots, reads start as layers let go of theirs; where a
// single layer is (a prompt of many segments), it is walked through in parts. Forward
// passes of different threads take turns: two choices in one set of slots would evict each other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "smoe/infer/expert_cache.h"
#include "smoe/infer/expert_reader.h"
#include "smoe/infer/streaming_package.h"
#include "smoe/model/expert_provider.h"

namespace smoe {

// When the bytes of an expert are compared with the checksum of the package.
enum class ChecksumPolicy { kFirstRead, kEveryRead, kNever };
template <>
struct EnumNames<ChecksumPolicy> {
  static constexpr std::array values = {enum_name(ChecksumPolicy::kFirstRead, "first_read"),
                                        enum_name(ChecksumPolicy::kEveryRead, "every_read"),
                                        enum_name(ChecksumPolicy::kNever, "never")};
};

struct ExpertStoreConfig {
  ExpertReaderConfig reader;
  EvictionPolicy eviction = EvictionPolicy::kLeastRecentlyUsed;
  double frequency_decay = 0.9;
  int64_t max_retries = 2;
  ChecksumPolicy checksums = ChecksumPolicy::kFirstRead;
};
template <class Visitor>
void visit_fields(Visitor& visitor, ExpertStoreConfig& config) {
  visitor.field("backend", config.reader.backend, "io_uring, threads (pread) or mmap (the page cache)");
  visitor.field("io", config.reader.io, "direct (O_DIRECT) or buffered; mmap is always buffered");
  visitor.field("num_threads", config.reader.num_threads, "reading threads of the backends threads and mmap",
                between(1, 256));
  visitor.field("queue_depth", config.reader.queue_depth, "reads in flight at most (io_uring)",
                between(1, 4096));
  visitor.field("eviction", config.eviction, "which expert that is not needed goes first");
  visitor.field(
      "frequency_decay", config.frequency_decay,
      "decayed_frequency: factor on an expert's count at each new choice (vanilla MoE: of each layer)",
      between(0.0, 1.0));
  visitor.field("max_retries", config.max_retries, "further tries after a read that failed", between(0, 100));
  visitor.field("checksums", config.checksums, "which reads are compared with the package's checksums");
}

// What one choice of experts cost, up to the next choice.
struct RefreshRecord {
  int64_t selected = 0;  // experts of the choice, over all layers
  int64_t hits = 0;      // of these, in memory (or on the way) when the choice was made
  int64_t bytes_read = 0;
  double stall_s = 0;  // time that layers waited for reads
  int64_t num_forwards = 0;
};

struct StreamingStatistics {
  int64_t num_choices = 0;
  int64_t num_forwards = 0;
  int64_t selected = 0;
  int64_t hits = 0;
  int64_t num_reads = 0;  // that succeeded
  int64_t bytes_read = 0;
  int64_t num_retries = 0;
  double stall_s = 0;

  // The share of chosen experts that were in memory already; 0 before the first choice.
  double hit_rate() const {
    return selected > 0 ? static_cast<double>(hits) / static_cast<double>(selected) : 0;
  }
};

// Slots that `memory_limit` bytes hold, and whether they suffice. Throws ConfigError naming the least memory
// if they cannot hold the experts of one layer at the largest of the package's budgets.
int64_t slots_for_memory(const StreamingPackage& package, int64_t memory_limit);

class ExpertStore final : public ExpertProvider {
 public:
  // `package` is copied. `reader` reads the package's experts.bin (tests pass faulty ones).
  ExpertStore(const StreamingPackage& package, int64_t num_slots, const ExpertStoreConfig& config,
              std::unique_ptr<BlockReader> reader);
  ExpertStore(const StreamingPackage& package, int64_t num_slots, const ExpertStoreConfig& config);
  ~ExpertStore() override;

  std::unique_ptr<ExpertDelivery> begin(const ExpertDemand& demand) override;
  int64_t most_experts() const override { return num_slots_; }

  int64_t num_slots() const { return num_slots_; }
  int64_t slot_bytes() const { return package_.layout().block_bytes * num_slots_; }
  StreamingStatistics statistics() const;
  // The newest records, oldest first; at most kMaxRecords are kept.
  std::vector<RefreshRecord> refreshes() const;
  // Zeroes counters and records; what is in memory stays.
  void reset_statistics();

  static constexpr size_t kMaxRecords = 4096;

 private:
  class Delivery;
  enum class SlotState : uint8_t { kEmpty, kLoading, kReady };
  struct Slot {
    SlotState state = SlotState::kEmpty;
    bool pinned = false;
    int64_t num_tries = 0;
  };

  // All of these need the lock.
  void start_choice(const std::vector<int64_t>& keys);
  bool acquire(int64_t key, std::vector<BlockRead>& reads);
  void release(int64_t key);
  void update_lock(int64_t slot);
  BlockRead make_read(int64_t slot) const;

  void start_reads(const std::vector<BlockRead>& reads);
  void on_completion(uint64_t ticket, int error);
  std::string check_block(int64_t slot, int64_t key, int error) const;
  const std::byte* block_of(int64_t slot, int64_t key) const;
  std::string describe(int64_t key) const;

  StreamingPackage package_;
  int64_t num_slots_;
  ExpertStoreConfig config_;
  std::unique_ptr<std::byte, void (*)(std::byte*)> memory_;
  std::vector<std::atomic<bool>> was_verified_;  // by key

  std::mutex turn_;  // one forward pass at a time; taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ExpertCache cache_;
  std::vector<Slot> slots_;
  std::map<int64_t, std::string> failures_;  // by key: what a waiting layer is told
  StreamingStatistics statistics_;
  std::deque<RefreshRecord> records_;

  std::unique_ptr<BlockReader> reader_;  // last: its threads use all of the above
};

}  // namespace smoe
