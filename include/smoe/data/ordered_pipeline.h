// Work shared by several threads whose results come out in the order of the input, whatever the number of
// threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace smoe {

// Calls `produce` until it returns nullopt (one thread at a time, in order), `transform` on several threads,
// and `consume` on the calling thread with the results in the order of production. At most a few items a
// thread are in flight. The first exception in that order, whoever threw it, ends everything and is rethrown:
// results before it have been consumed, none after it.
template <class Item, class Result>
class OrderedPipeline {
 public:
  using Produce = std::function<std::optional<Item>()>;
  using Transform = std::function<Result(Item&&)>;
  using Consume = std::function<void(Result&&)>;

  static void run(int64_t num_threads, Produce produce, Transform transform, const Consume& consume) {
    OrderedPipeline pipeline(num_threads, std::move(produce), std::move(transform));
    pipeline.consume_all(consume);
  }

 private:
  struct Outcome {
    std::optional<Result> result;
    std::exception_ptr error;
  };

  OrderedPipeline(int64_t num_threads, Produce produce, Transform transform)
      : produce_(std::move(produce)), transform_(std::move(transform)), limit_(4 * num_threads) {
    for (int64_t i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] { work(); });
    }
  }

  ~OrderedPipeline() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  void work() {
    for (;;) {
      int64_t number = 0;
      Outcome outcome;
      std::optional<Item> item = take(number, outcome);
      if (!item && !outcome.error) {
        return;
      }
      if (item) {
        try {
          outcome.result.emplace(transform_(std::move(*item)));
        } catch (...) {
          outcome.error = std::current_exception();
        }
      }
      {
        const std::lock_guard lock(mutex_);
        finished_.emplace(number, std::move(outcome));
      }
      ready_.notify_one();
    }
  }

  // The next item and its number. Waiting for room happens under the producers' lock only: the consumer and
  // the threads that transform never need it.
  std::optional<Item> take(int64_t& number, Outcome& outcome) {
    const std::lock_guard producing(produce_mutex_);
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] { return stopped_ || num_produced_ < num_consumed_ + limit_; });
      if (stopped_ || exhausted_) {
        return std::nullopt;
      }
    }
    std::optional<Item> item;
    try {
      item = produce_();
    } catch (...) {
      outcome.error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    exhausted_ = !item;
    if (item || outcome.error) {
      number = num_produced_++;
    }
    if (exhausted_) {
      ready_.notify_one();
    }
    return item;
  }

  void consume_all(const Consume& consume) {
    for (;;) {
      Outcome outcome;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [this] {
          return finished_.contains(num_consumed_) || (exhausted_ && num_consumed_ == num_produced_);
        });
        if (!finished_.contains(num_consumed_)) {
          return;
        }
        outcome = std::move(finished_.extract(num_consumed_).mapped());
        ++num_consumed_;
      }
      room_.notify_one();
      if (outcome.error) {
        std::rethrow_exception(outcome.error);
      }
      consume(std::move(*outcome.result));
    }
  }

  Produce produce_;
  Transform transform_;
  int64_t limit_;
  std::mutex produce_mutex_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable room_;
  std::condition_variable ready_;
  std::map<int64_t, Outcome> finished_;
  int64_t num_produced_ = 0;
  int64_t num_consumed_ = 0;
  bool exhausted_ = false;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace smoe
