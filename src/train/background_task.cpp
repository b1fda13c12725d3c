#include "background_task.h"

#include <exception>
#include <utility>

#include "smoe/core/error.h"

namespace smoe {

BackgroundTask::~BackgroundTask() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundTask::start(std::function<void()> work) {
  SMOE_ASSERT(!active());
  ended_ = false;
  error_.clear();
  thread_ = std::thread([this, work = std::move(work)] { run(work); });
}

void BackgroundTask::run(const std::function<void()>& work) {
  // The message is kept, not the exception: whoever waits decides what kind of error it is to the run.
  std::string error;
  try {
    work();
  } catch (const std::exception& exception) {
    error = exception.what();
    if (error.empty()) error = "unknown error";
  }
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  ended_ = true;
  changed_.notify_all();
}

bool BackgroundTask::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

bool BackgroundTask::wait_for(std::chrono::duration<double> limit) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return ended_; });
}

std::string BackgroundTask::wait() {
  if (thread_.joinable()) thread_.join();
  return std::exchange(error_, {});
}

}  // namespace smoe
