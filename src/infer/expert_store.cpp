#include "smoe/infer/expert_store.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

double to_mebibytes(int64_t bytes) { return static_cast<double>(bytes) / kMebibyte; }

void free_memory(std::byte* memory) { std::free(memory); }

// Memory is only used as slots fill: untouched pages cost nothing.
std::byte* allocate_slots(int64_t num_bytes) {
  void* memory = std::aligned_alloc(kExpertBlockAlignment, static_cast<size_t>(num_bytes));
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

int64_t largest_budget(const ModelConfig& config) {
  return config.budgets.empty() ? 1 : std::max<int64_t>(1, config.budgets.back().experts_per_layer);
}

}  // namespace

int64_t slots_for_memory(const StreamingPackage& package, int64_t memory_limit) {
  const int64_t block_bytes = package.layout().block_bytes;
  const int64_t slots = memory_limit / block_bytes;
  const int64_t needed = largest_budget(package.model_config());
  SMOE_CHECK(
      ConfigError, slots >= needed,
      "memory limit {:.2f} MiB holds {} experts of {:.3f} MiB, but one layer uses {} at once: give at least "
      "{:.2f} MiB ({:.2f} MiB keep a whole choice of all {} layers in memory between refreshes)",
      to_mebibytes(memory_limit), slots, to_mebibytes(block_bytes), needed,
      to_mebibytes(needed * block_bytes), to_mebibytes(needed * block_bytes * package.num_moe_layers()),
      package.num_moe_layers());
  // More slots than experts would stay empty.
  return std::min(slots, package.num_moe_layers() * package.num_experts());
}

// The experts of one forward pass: a walk through the layers with a second finger ahead of it that starts
// reads.
class ExpertStore::Delivery final : public ExpertDelivery {
 public:
  Delivery(ExpertStore& store, const ExpertDemand& demand) : store_(store), turn_(store.turn_) {
    std::unique_lock lock(store_.mutex_);
    ++store_.statistics_.num_forwards;
    store_.failures_.clear();
    store_.cache_.set_position(0);
    if (demand.experts_of_layer.empty()) return;
    SMOE_ASSERT(std::ssize(demand.experts_of_layer) == store_.package_.num_moe_layers());
    std::vector<int64_t> all;
    for (size_t layer = 0; layer < demand.experts_of_layer.size(); ++layer) {
      const std::vector<int64_t> keys = keys_of(static_cast<int64_t>(layer), demand.experts_of_layer[layer]);
      for (size_t begin = 0; begin < keys.size(); begin += static_cast<size_t>(store_.num_slots_)) {
        const size_t end = std::min(keys.size(), begin + static_cast<size_t>(store_.num_slots_));
        steps_.emplace_back(keys.begin() + static_cast<std::ptrdiff_t>(begin),
                            keys.begin() + static_cast<std::ptrdiff_t>(end));
      }
      all.insert(all.end(), keys.begin(), keys.end());
    }
    is_planned_ = true;
    // Rows that are given up leave a part of the choice; another sequence brings one of its own.
    if (demand.is_new_choice || !std::ranges::includes(store_.cache_.chosen(), all)) store_.start_choice(all);
    if (store_.records_.empty()) store_.records_.emplace_back();
    ++store_.records_.back().num_forwards;
    start_ahead(lock);
  }

  ~Delivery() override {
    const std::lock_guard lock(store_.mutex_);
    for (const std::vector<int64_t>& keys : steps_) {
      for (const int64_t key : keys) store_.release(key);
    }
  }

  std::vector<ExpertView> wait(int64_t layer, const std::vector<int64_t>& experts) override {
    if (experts.empty()) return {};
    std::unique_lock lock(store_.mutex_);
    const std::vector<int64_t>& keys = enter_step(keys_of(layer, experts));
    wait_until_ready(keys, lock);
    std::vector<ExpertView> views;
    views.reserve(keys.size());
    for (const int64_t key : keys) {
      store_.cache_.mark_used(key);
      views.push_back(
          view_expert(store_.package_.layout(), store_.block_of(store_.cache_.slot_of(key), key)));
    }
    return views;
  }

 private:
  std::vector<int64_t> keys_of(int64_t layer, const std::vector<int64_t>& experts) const {
    std::vector<int64_t> keys;
    keys.reserve(experts.size());
    for (const int64_t expert : experts) keys.push_back(layer * store_.package_.num_experts() + expert);
    return keys;
  }

  // Lets go of the step before; a vanilla MoE says only now what it chose.
  const std::vector<int64_t>& enter_step(std::vector<int64_t> keys) {
    SMOE_ASSERT(std::ssize(keys) <= store_.num_slots_);
    if (num_entered_ > 0) {
      for (const int64_t key : steps_[num_entered_ - 1]) store_.release(key);
      steps_[num_entered_ - 1].clear();
    }
    store_.cache_.set_position(keys.front());
    if (!is_planned_) {
      store_.start_choice(keys);
      store_.records_.back().num_forwards = 1;
      steps_.push_back(std::move(keys));
    } else {
      SMOE_ASSERT(num_entered_ < steps_.size() && steps_[num_entered_] == keys);
    }
    return steps_[num_entered_++];
  }

  // Starts as many reads, in order, as there are slots for. Lets go of the lock while it hands them over.
  void start_ahead(std::unique_lock<std::mutex>& lock) {
    std::vector<BlockRead> reads;
    while (ahead_step_ < steps_.size()) {
      const std::vector<int64_t>& keys = steps_[ahead_step_];
      while (ahead_index_ < keys.size() && store_.acquire(keys[ahead_index_], reads)) ++ahead_index_;
      if (ahead_index_ < keys.size()) break;
      ++ahead_step_;
      ahead_index_ = 0;
    }
    if (reads.empty()) return;
    lock.unlock();
    store_.start_reads(reads);
    lock.lock();
  }

  void wait_until_ready(const std::vector<int64_t>& keys, std::unique_lock<std::mutex>& lock) {
    const auto start = std::chrono::steady_clock::now();
    bool stalled = false;
    while (true) {
      start_ahead(lock);
      throw_if_failed(keys);
      if (all_ready(keys)) break;
      stalled = true;
      store_.changed_.wait(lock);
    }
    if (!stalled) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    store_.statistics_.stall_s += seconds;
    store_.records_.back().stall_s += seconds;
  }

  bool all_ready(const std::vector<int64_t>& keys) const {
    return std::ranges::all_of(keys, [&](int64_t key) {
      const int64_t slot = store_.cache_.slot_of(key);
      if (slot < 0) return false;
      const Slot& state = store_.slots_[static_cast<size_t>(slot)];
      return state.pinned && state.state == SlotState::kReady;
    });
  }

  void throw_if_failed(const std::vector<int64_t>& keys) const {
    for (const int64_t key : keys) {
      const auto found = store_.failures_.find(key);
      if (found != store_.failures_.end()) {
        throw ExpertReadError(found->second, key % store_.package_.num_experts());
      }
    }
  }

  ExpertStore& store_;
  std::unique_lock<std::mutex> turn_;
  // Keys that are in memory together: those of a layer, or a part of them where they are more than the slots.
  // Emptied when the walk has passed them.
  std::vector<std::vector<int64_t>> steps_;
  bool is_planned_ = false;
  size_t num_entered_ = 0;
  size_t ahead_step_ = 0;
  size_t ahead_index_ = 0;
};

ExpertStore::ExpertStore(const StreamingPackage& package, int64_t num_slots, const ExpertStoreConfig& config,
                         std::unique_ptr<BlockReader> reader)
    : package_(package),
      num_slots_(num_slots),
      config_(config),
      memory_(reader->owns_memory() ? nullptr : allocate_slots(num_slots * package.layout().block_bytes),
              &free_memory),
      was_verified_(static_cast<size_t>(package.num_moe_layers() * package.num_experts())),
      cache_({num_slots, package.num_moe_layers() * package.num_experts(), package.num_experts()},
             config.eviction, config.frequency_decay),
      slots_(static_cast<size_t>(num_slots)),
      reader_(std::move(reader)) {
  reader_->set_completion([this](uint64_t ticket, int error) { on_completion(ticket, error); });
}

ExpertStore::ExpertStore(const StreamingPackage& package, int64_t num_slots, const ExpertStoreConfig& config)
    : ExpertStore(package, num_slots, config, make_block_reader(package.experts_path(), config.reader)) {}

ExpertStore::~ExpertStore() = default;

std::unique_ptr<ExpertDelivery> ExpertStore::begin(const ExpertDemand& demand) {
  return std::make_unique<Delivery>(*this, demand);
}

void ExpertStore::start_choice(const std::vector<int64_t>& keys) {
  cache_.choose(keys);
  RefreshRecord record;
  record.selected = std::ssize(keys);
  for (const int64_t key : keys) record.hits += cache_.slot_of(key) >= 0 ? 1 : 0;
  if (records_.size() == kMaxRecords) records_.pop_front();
  records_.push_back(record);
  ++statistics_.num_choices;
  statistics_.selected += record.selected;
  statistics_.hits += record.hits;
}

bool ExpertStore::acquire(int64_t key, std::vector<BlockRead>& reads) {
  int64_t slot = cache_.slot_of(key);
  if (slot < 0) {
    const auto placement = cache_.place(key);
    if (!placement) return false;
    slot = placement->slot;
    if (placement->evicted_key >= 0 && reader_->owns_memory()) {
      reader_->drop(placement->evicted_key * package_.layout().block_bytes, package_.layout().block_bytes);
    }
    slots_[static_cast<size_t>(slot)] = {SlotState::kLoading, false, 1};
    reads.push_back(make_read(slot));
  }
  slots_[static_cast<size_t>(slot)].pinned = true;
  update_lock(slot);
  return true;
}

void ExpertStore::release(int64_t key) {
  const int64_t slot = cache_.slot_of(key);
  if (slot < 0) return;
  slots_[static_cast<size_t>(slot)].pinned = false;
  update_lock(slot);
}

void ExpertStore::update_lock(int64_t slot) {
  const Slot& state = slots_[static_cast<size_t>(slot)];
  cache_.set_locked(slot, state.pinned || state.state == SlotState::kLoading);
}

BlockRead ExpertStore::make_read(int64_t slot) const {
  const int64_t bytes = package_.layout().block_bytes;
  return {static_cast<uint64_t>(slot), cache_.key_of(slot) * bytes, bytes,
          memory_ == nullptr ? nullptr : memory_.get() + slot * bytes};
}

void ExpertStore::start_reads(const std::vector<BlockRead>& reads) { reader_->start(reads); }

const std::byte* ExpertStore::block_of(int64_t slot, int64_t key) const {
  const int64_t bytes = package_.layout().block_bytes;
  return memory_ == nullptr ? reader_->block(key * bytes) : memory_.get() + slot * bytes;
}

std::string ExpertStore::describe(int64_t key) const {
  return fmt::format("{}: expert {} of MoE layer {}", package_.experts_path().string(),
                     key % package_.num_experts(), key / package_.num_experts());
}

// What is wrong with a block that was read; empty if nothing is.
std::string ExpertStore::check_block(int64_t slot, int64_t key, int error) const {
  if (error != 0) return std::strerror(error);
  const bool verified = was_verified_[static_cast<size_t>(key)].load(std::memory_order_relaxed);
  if (config_.checksums == ChecksumPolicy::kNever ||
      (config_.checksums == ChecksumPolicy::kFirstRead && verified)) {
    return {};
  }
  const int64_t num_experts = package_.num_experts();
  const uint64_t expected = package_.block(key / num_experts, key % num_experts).checksum;
  if (expert_checksum(block_of(slot, key), package_.layout().block_bytes) == expected) return {};
  return "its checksum differs from that of the package, so the file is damaged: export it again, or check "
         "the disk";
}

void ExpertStore::on_completion(uint64_t ticket, int error) {
  const auto slot = static_cast<int64_t>(ticket);
  int64_t key = 0;
  {
    const std::lock_guard lock(mutex_);
    key = cache_.key_of(slot);  // a slot that is being filled keeps its key
  }
  const std::string problem = check_block(slot, key, error);
  std::optional<BlockRead> retry;
  {
    const std::lock_guard lock(mutex_);
    Slot& state = slots_[static_cast<size_t>(slot)];
    if (problem.empty()) {
      was_verified_[static_cast<size_t>(key)].store(true, std::memory_order_relaxed);
      state.state = SlotState::kReady;
      update_lock(slot);
      ++statistics_.num_reads;
      statistics_.bytes_read += package_.layout().block_bytes;
      if (!records_.empty()) records_.back().bytes_read += package_.layout().block_bytes;
    } else if (state.num_tries <= config_.max_retries) {
      ++state.num_tries;
      ++statistics_.num_retries;
      retry = make_read(slot);
    } else {
      failures_[key] = fmt::format("{} could not be read ({} tries): {}. Only this request fails",
                                   describe(key), state.num_tries, problem);
      state = {};
      cache_.remove(slot);
    }
  }
  if (retry) {
    start_reads({*retry});
  } else {
    changed_.notify_all();
  }
}

StreamingStatistics ExpertStore::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

std::vector<RefreshRecord> ExpertStore::refreshes() const {
  const std::lock_guard lock(mutex_);
  return {records_.begin(), records_.end()};
}

void ExpertStore::reset_statistics() {
  const std::lock_guard lock(mutex_);
  statistics_ = {};
  records_.clear();
}

}  // namespace smoe
