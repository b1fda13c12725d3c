// One piece of work at a time on a thread of its own, whose end the caller can ask for or wait for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace smoe {

class BackgroundTask {
 public:
  BackgroundTask() = default;
  // Waits for the work; an error that nobody has asked for is lost.
  ~BackgroundTask();
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Starts `work`. The work before must have been collected with wait().
  void start(std::function<void()> work);

  // True from start() to wait().
  bool active() const { return thread_.joinable(); }
  // True if the work has ended, or there is none.
  bool ended() const;
  // Waits until the work ends, but not longer than `limit`; true if it has ended.
  bool wait_for(std::chrono::duration<double> limit) const;
  // Waits for the end. The message of the exception that ended the work; empty if there was none.
  std::string wait();

 private:
  void run(const std::function<void()>& work);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ended_ = true;
  std::string error_;
  std::thread thread_;
};

}  // namespace smoe
