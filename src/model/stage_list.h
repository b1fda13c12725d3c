// Work in stages that follow each other, done by all threads in one parallel region: for passes of many small
// steps (one token through a model), where a region for every step would cost more than the step.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

namespace smoe {

// Threads claim items; a stage begins when all items of the one before are done. Nobody waits for a thread
// that has claimed nothing, so that a region with fewer threads than asked for, or a thread that the system
// has put aside, only makes it slower.
class StageList {
 public:
  // `body(item)` for items 0 .. num_items - 1, in any order and by any thread; then `after`, once.
  struct Stage {
    int64_t num_items = 1;
    std::function<void(int64_t item)> body;
    std::function<void()> after = {};
  };

  void add(Stage stage) { states_.emplace_back().stage = std::move(stage); }
  // Stages so far: the index of the next one.
  int64_t size() const { return static_cast<int64_t>(states_.size()); }
  // From `after` of an earlier stage: what comes was not known before.
  void set_num_items(int64_t stage, int64_t num_items);
  // Throws the first exception of a body or an `after`; what follows it is not run. Once.
  void run();

 private:
  struct State {
    Stage stage;
    std::atomic<int64_t> num_claimed = 0;
    std::atomic<int64_t> num_done = 0;
    std::atomic<bool> is_complete = false;
  };
  void work();
  void finish(State& state);
  template <class Call>
  void guarded(const Call& call);

  std::deque<State> states_;
  std::atomic<bool> has_failed_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace smoe
