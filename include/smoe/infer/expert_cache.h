// Which expert lies in which slot, and which one goes when room is needed. Bookkeeping only: no memory, no
// reading, no locks.
//
// Experts that the current choice still needs go last, the one needed furthest in the future first (a choice
// that is larger than the cache is walked through again with every token, and least-recently-used would then
// miss every time). Among all others the policy decides.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "smoe/core/config_visitors.h"

namespace smoe {

enum class EvictionPolicy {
  kLeastRecentlyUsed,
  kDecayedFrequency,  // the smallest sum over past choices of decay^(choices since); ties: least recently
                      // used
};
template <>
struct EnumNames<EvictionPolicy> {
  static constexpr std::array values = {enum_name(EvictionPolicy::kLeastRecentlyUsed, "lru"),
                                        enum_name(EvictionPolicy::kDecayedFrequency, "decayed_frequency")};
};

class ExpertCache {
 public:
  // Keys are [0, num_keys); `layer_size` keys in a row belong to one layer.
  struct Sizes {
    int64_t num_slots = 0;
    int64_t num_keys = 0;
    int64_t layer_size = 1;
  };
  ExpertCache(const Sizes& sizes, EvictionPolicy policy, double decay);

  // A new choice: its keys (ascending) count as used once more. Replaces the previous one.
  void choose(const std::vector<int64_t>& keys);
  const std::vector<int64_t>& chosen() const { return chosen_; }
  // Where the walk through the choice stands: the first key that it still needs. Keys are walked in ascending
  // order.
  void set_position(int64_t key) { position_ = key; }

  // The slot of a key, or -1.
  int64_t slot_of(int64_t key) const { return slot_of_key_[static_cast<size_t>(key)]; }
  int64_t key_of(int64_t slot) const { return slots_[static_cast<size_t>(slot)].key; }
  void mark_used(int64_t key);

  struct Placement {
    int64_t slot = -1;
    int64_t evicted_key = -1;  // -1: the slot was free
  };
  // Takes a free slot, or that of an expert that may go: not locked, not needed before `key` is, and not
  // needed later in this walk unless `key` is needed now. Nothing if there is none. The slot is locked.
  std::optional<Placement> place(int64_t key);
  // Locked slots stay. Locks do not nest.
  void set_locked(int64_t slot, bool locked) { slots_[static_cast<size_t>(slot)].locked = locked; }
  // Frees a slot.
  void remove(int64_t slot);

 private:
  struct Slot {
    int64_t key = -1;
    bool locked = false;
    uint64_t last_use = 0;
  };
  // Layers until the current choice needs the key again; -1 if it does not, all layers if the walk has just
  // passed it.
  int64_t distance(int64_t key) const;
  double frequency(int64_t key) const;
  bool may_replace(int64_t evicted_key, int64_t key) const;
  // True if `first` should go before `second`.
  bool goes_before(const Slot& first, const Slot& second) const;

  EvictionPolicy policy_;
  double decay_;
  int64_t layer_size_;
  int64_t num_layers_;
  int64_t position_ = 0;
  uint64_t clock_ = 0;
  int64_t num_choices_ = 0;
  std::vector<Slot> slots_;
  std::vector<int64_t> free_slots_;
  std::vector<int64_t> slot_of_key_;
  std::vector<uint8_t> is_chosen_;
  std::vector<int64_t> chosen_;
  std::vector<double> frequency_;  // at the choice number in frequency_time_
  std::vector<int64_t> frequency_time_;
};

}  // namespace smoe
