// Finds out which process of a job died, hangs or gave up, and ends this one when another did.
//
// Every process writes signs of life into the store: a counter, the number of operations it has started, and
// what it is doing. A process whose counter stands still is dead or stopped; one that lives but has started
// fewer operations is the one that the others wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "process_groups.h"

namespace smoe {

class FailureWatch {
 public:
  // `margin`: time that diagnose() may take. Starts the thread that writes the signs.
  FailureWatch(const StorePointer& store, const LaunchInfo& launch, std::chrono::milliseconds margin);
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  void set_step(int64_t step) { step_ = step; }
  int64_t step() const { return step_; }
  // This process starts an operation.
  void begin(const std::string& operation);

  // Why an operation failed, as far as the signs tell, for example "rank 3 does not answer any more (...)".
  // Waits for new signs, at most the margin.
  std::string diagnose();
  // Publishes why the job ends, unless somebody did before. From then on this process is about to end by
  // itself; if it has not after the margin, the thread ends it.
  void publish(const std::string& reason) noexcept;
  // Stops writing, with a good end.
  void stop();

  // How often a process has given a sign of life, read through `store`: -1 before the first.
  int64_t sign_count(const StorePointer& store, int64_t rank) const;
  // "rank 3 does not answer any more (...)".
  std::string describe_silent(const StorePointer& store, int64_t rank) const;

  bool has_failed() const { return failed_; }
  // Why another process ends the job; empty if none has said so.
  std::string known_reason() const;

 private:
  struct Sign {
    int64_t count = -1;
    int64_t operations = 0;
    int64_t step = 0;
    std::string operation;
  };

  void run();
  bool beat(int64_t count);
  bool wait_for_stop(std::chrono::milliseconds time);
  std::vector<Sign> read_signs(const StorePointer& store) const;
  static Sign parse_sign(const std::vector<uint8_t>& bytes);
  static std::string describe(int64_t rank, const Sign& sign, const char* what);
  std::string compare_signs(const StorePointer& store) const;
  [[noreturn]] void end_process(const std::string& reason) const;

  StorePointer store_;        // of the thread
  StorePointer other_store_;  // of the caller
  LaunchInfo launch_;
  std::chrono::milliseconds margin_;
  std::chrono::milliseconds interval_;
  std::atomic<int64_t> step_{0};
  std::atomic<int64_t> operations_{0};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::condition_variable condition_;
  std::string operation_ = "start";
  std::string known_reason_;  // that another process published
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace smoe
