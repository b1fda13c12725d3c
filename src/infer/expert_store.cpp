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
    store_.cache_.set_current_layer(0);
    layers_.resize(static_cast<size_t>(store_.package_.num_moe_layers()));
    if (demand.experts_of_layer.empty()) return;
    SMOE_ASSERT(demand.experts_of_layer.size() == layers_.size());
    std::vector<int64_t> all;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      check_fits(demand.experts_of_layer[layer], static_cast<int64_t>(layer));
      layers_[layer] = keys_of(static_cast<int64_t>(layer), demand.experts_of_layer[layer]);
      all.insert(all.end(), layers_[layer].begin(), layers_[layer].end());
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
    for (const std::vector<int64_t>& keys : layers_) {
      for (const int64_t key : keys) store_.release(key);
    }
  }

  std::vector<ExpertView> wait(int64_t layer, const std::vector<int64_t>& experts) override {
    std::unique_lock lock(store_.mutex_);
    enter_layer(layer, experts);
    const std::vector<int64_t>& keys = layers_[static_cast<size_t>(layer)];
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

  void check_fits(const std::vector<int64_t>& experts, int64_t layer) const {
    SMOE_CHECK(
        ConfigError, std::ssize(experts) <= store_.num_slots_,
        "MoE layer {} needs {} experts at once, the memory limit holds {}: give at least {:.2f} MiB, or feed "
        "fewer rows and fewer segments at a time",
        layer, experts.size(), store_.num_slots_,
        to_mebibytes(std::ssize(experts) * store_.package_.layout().block_bytes));
  }

  // Lets go of the layers before `layer`; a vanilla MoE says only now what it chose.
  void enter_layer(int64_t layer, const std::vector<int64_t>& experts) {
    for (; num_done_ < layer; ++num_done_) {
      for (const int64_t key : layers_[static_cast<size_t>(num_done_)]) store_.release(key);
      layers_[static_cast<size_t>(num_done_)].clear();
    }
    store_.cache_.set_current_layer(layer);
    if (is_planned_) {
      SMOE_ASSERT(experts.size() == layers_[static_cast<size_t>(layer)].size());
      return;
    }
    check_fits(experts, layer);
    layers_[static_cast<size_t>(layer)] = keys_of(layer, experts);
    store_.start_choice(layers_[static_cast<size_t>(layer)]);
    store_.records_.back().num_forwards = 1;
    ahead_layer_ = layer;
    ahead_index_ = 0;
  }

  // Starts as many reads, in order, as there are slots for. Lets go of the lock while it hands them over.
  void start_ahead(std::unique_lock<std::mutex>& lock) {
    std::vector<BlockRead> reads;
    while (ahead_layer_ < std::ssize(layers_)) {
      const std::vector<int64_t>& keys = layers_[static_cast<size_t>(ahead_layer_)];
      while (ahead_index_ < keys.size() && store_.acquire(keys[ahead_index_], reads)) ++ahead_index_;
      if (ahead_index_ < keys.size()) break;
      ++ahead_layer_;
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
      if (found != store_.failures_.end()) throw DataError(found->second);
    }
  }

  ExpertStore& store_;
  std::unique_lock<std::mutex> turn_;
  std::vector<std::vector<int64_t>> layers_;  // keys; emptied when a layer is done
  bool is_planned_ = false;
  int64_t num_done_ = 0;
  int64_t ahead_layer_ = 0;
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
