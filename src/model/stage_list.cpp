#include "stage_list.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <chrono>
#include <thread>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// Short waits burn a little time, as the next stage is near; longer ones leave the core to others, and those
// for a disk sleep.
void wait_for(const std::atomic<bool>& flag) {
  constexpr int kSpins = 1000;
  constexpr int kYields = 50;
  for (int64_t round = 0; !flag.load(std::memory_order_acquire); ++round) {
    if (round < kSpins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else if (round < kSpins + kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace

void StageList::set_num_items(int64_t stage, int64_t num_items) {
  states_.at(static_cast<size_t>(stage)).stage.num_items = num_items;
}

template <class Call>
void StageList::guarded(const Call& call) {
  if (has_failed_.load(std::memory_order_relaxed)) return;
  try {
    call();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    has_failed_.store(true, std::memory_order_relaxed);
  }
}

void StageList::finish(State& state) {
  if (state.stage.after) guarded(state.stage.after);
  state.is_complete.store(true, std::memory_order_release);
}

void StageList::work() {
  for (State& state : states_) {
    const int64_t num_items = state.stage.num_items;
    SMOE_ASSERT(num_items > 0);
    int64_t item = 0;
    while ((item = state.num_claimed.fetch_add(1, std::memory_order_relaxed)) < num_items) {
      guarded([&] { state.stage.body(item); });
      if (state.num_done.fetch_add(1, std::memory_order_acq_rel) + 1 == num_items) finish(state);
    }
    wait_for(state.is_complete);
    // The numbers of items that follow may not be known.
    if (has_failed_.load(std::memory_order_relaxed)) return;
  }
}

void StageList::run() {
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) work();
  });
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace smoe
