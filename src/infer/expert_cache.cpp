#include "smoe/infer/expert_cache.h"

#include <cmath>

#include "smoe/core/error.h"

namespace smoe {

ExpertCache::ExpertCache(const Sizes& sizes, EvictionPolicy policy, double decay)
    : policy_(policy),
      decay_(decay),
      layer_size_(sizes.layer_size),
      num_layers_(sizes.num_keys / sizes.layer_size),
      slots_(static_cast<size_t>(sizes.num_slots)),
      slot_of_key_(static_cast<size_t>(sizes.num_keys), -1),
      is_chosen_(static_cast<size_t>(sizes.num_keys), 0),
      frequency_(static_cast<size_t>(sizes.num_keys), 0.0),
      frequency_time_(static_cast<size_t>(sizes.num_keys), 0) {
  for (int64_t slot = sizes.num_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

void ExpertCache::choose(const std::vector<int64_t>& keys) {
  for (const int64_t key : chosen_) is_chosen_[static_cast<size_t>(key)] = 0;
  chosen_ = keys;
  ++num_choices_;
  for (const int64_t key : keys) {
    const auto index = static_cast<size_t>(key);
    frequency_[index] = frequency(key) + 1.0;
    frequency_time_[index] = num_choices_;
    is_chosen_[index] = 1;
  }
}

void ExpertCache::mark_used(int64_t key) {
  const int64_t slot = slot_of(key);
  if (slot >= 0) slots_[static_cast<size_t>(slot)].last_use = ++clock_;
}

int64_t ExpertCache::distance(int64_t key) const {
  if (is_chosen_[static_cast<size_t>(key)] == 0) return -1;
  const int64_t ahead = key / layer_size_ - position_ / layer_size_;
  return ahead >= 0 && key >= position_ ? ahead : ahead + num_layers_;
}

double ExpertCache::frequency(int64_t key) const {
  const auto index = static_cast<size_t>(key);
  return frequency_[index] * std::pow(decay_, static_cast<double>(num_choices_ - frequency_time_[index]));
}

bool ExpertCache::goes_before(const Slot& first, const Slot& second) const {
  const int64_t first_distance = distance(first.key);
  const int64_t second_distance = distance(second.key);
  if ((first_distance < 0) != (second_distance < 0)) return first_distance < 0;
  if (first_distance != second_distance) return first_distance > second_distance;
  if (policy_ == EvictionPolicy::kDecayedFrequency) {
    const double first_frequency = frequency(first.key);
    const double second_frequency = frequency(second.key);
    if (first_frequency != second_frequency) return first_frequency < second_frequency;
  }
  return first.last_use < second.last_use;
}

bool ExpertCache::may_replace(int64_t evicted_key, int64_t key) const {
  const int64_t evicted_distance = distance(evicted_key);
  const int64_t key_distance = distance(key);
  if (evicted_distance < 0) return true;
  // Reading ahead must not push out what this walk still comes to: that would only be read again.
  if (key_distance > 0 && evicted_key / layer_size_ > position_ / layer_size_) return false;
  return evicted_distance > key_distance;
}

std::optional<ExpertCache::Placement> ExpertCache::place(int64_t key) {
  SMOE_ASSERT(slot_of(key) < 0);
  Placement placement;
  if (!free_slots_.empty()) {
    placement.slot = free_slots_.back();
    free_slots_.pop_back();
  } else {
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      const bool better =
          placement.slot < 0 || goes_before(slots_[slot], slots_[static_cast<size_t>(placement.slot)]);
      if (!slots_[slot].locked && better) placement.slot = static_cast<int64_t>(slot);
    }
    if (placement.slot < 0) return std::nullopt;
    placement.evicted_key = key_of(placement.slot);
    if (!may_replace(placement.evicted_key, key)) return std::nullopt;
    slot_of_key_[static_cast<size_t>(placement.evicted_key)] = -1;
  }
  slots_[static_cast<size_t>(placement.slot)] = {key, true, ++clock_};
  slot_of_key_[static_cast<size_t>(key)] = placement.slot;
  return placement;
}

void ExpertCache::remove(int64_t slot) {
  const int64_t key = key_of(slot);
  SMOE_ASSERT(key >= 0);
  slot_of_key_[static_cast<size_t>(key)] = -1;
  slots_[static_cast<size_t>(slot)] = {};
  free_slots_.push_back(slot);
}

}  // namespace smoe
