// Reads through io_uring: callers queue, one thread waits for completions and keeps the ring full.
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "expert_reader_backends.h"
#include "smoe/core/error.h"
#include "smoe/core/log.h"

namespace smoe {
namespace {

// User data of the request that wakes the thread so that it ends.
constexpr uint64_t kStop = ~uint64_t{0};
constexpr std::chrono::milliseconds kLongestPause{128};

class UringReader final : public BlockReader {
 public:
  UringReader(const std::filesystem::path& path, const ExpertReaderConfig& config)
      : file_(path, config.io), depth_(static_cast<size_t>(config.queue_depth)) {
    // One entry more than reads: the request to stop must always find room.
    const int status = ::io_uring_queue_init(static_cast<unsigned>(config.queue_depth) + 1, &ring_, 0);
    SMOE_CHECK(
        ConfigError, status == 0,
        "expert backend io_uring cannot be used here: {}. Use the backend threads, or allow io_uring "
        "(sysctl kernel.io_uring_disabled=0, a container profile that permits it, a larger `ulimit -l`)",
        std::strerror(-status));
    thread_ = std::thread([this] { run(); });
  }

  ~UringReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      if (in_flight_.empty() && waiting_.empty()) submit_stop();
    }
    thread_.join();
    ::io_uring_queue_exit(&ring_);
  }

  void set_completion(Completion completion) override { completion_ = std::move(completion); }

  void start(const std::vector<BlockRead>& reads) override {
    const std::lock_guard lock(mutex_);
    for (const BlockRead& read : reads) waiting_.push_back({read, 0});
    submit_waiting();
  }

 private:
  struct Progress {
    BlockRead read;
    int64_t done = 0;
  };

  // With the lock held. A kernel that is short of memory does not take entries, or not all; they would stay
  // in the ring until the next ones come, for ever if nobody asks for more before these are read.
  void submit() {
    std::chrono::milliseconds pause{1};
    while (::io_uring_sq_ready(&ring_) > 0) {
      const int status = ::io_uring_submit(&ring_);
      if (status > 0) continue;
      SMOE_ASSERT(status == 0 || status == -EAGAIN || status == -EBUSY || status == -EINTR ||
                  status == -ENOMEM);
      if (pause == kLongestPause / 2) {
        spdlog::warn("io_uring does not take reads: {}; trying again", std::strerror(-status));
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  void submit_stop() {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_nop(entry);
    ::io_uring_sqe_set_data64(entry, kStop);
    submit();
  }

  // With the lock held.
  void submit_waiting() {
    while (!waiting_.empty() && in_flight_.size() < depth_) {
      const Progress next = waiting_.front();
      waiting_.pop_front();
      io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
      SMOE_ASSERT(entry != nullptr);
      ::io_uring_prep_read(entry, file_.number(), next.read.slot + next.done,
                           static_cast<unsigned>(next.read.num_bytes - next.done),
                           static_cast<uint64_t>(next.read.offset + next.done));
      ::io_uring_sqe_set_data64(entry, next_id_);
      in_flight_.emplace(next_id_++, next);
    }
    submit();
  }

  void run() {
    while (true) {
      io_uring_cqe* completion = nullptr;
      const int status = ::io_uring_wait_cqe(&ring_, &completion);
      if (status < 0) continue;  // interrupted by a signal
      const uint64_t id = ::io_uring_cqe_get_data64(completion);
      const int result = completion->res;
      ::io_uring_cqe_seen(&ring_, completion);
      if (id == kStop) return;
      finish(id, result);
    }
  }

  void finish(uint64_t id, int result) {
    BlockRead read;
    {
      const std::lock_guard lock(mutex_);
      Progress& progress = in_flight_.at(id);
      if (result > 0) progress.done += result;
      const bool again = result == -EINTR || result == -EAGAIN;
      if (again || (result > 0 && progress.done < progress.read.num_bytes)) {
        waiting_.push_front(progress);
        in_flight_.erase(id);
        submit_waiting();
        return;
      }
      read = progress.read;
    }
    // The read stays in flight until its completion has returned, which may start another try.
    completion_(read.ticket, result > 0 ? 0 : result == 0 ? EIO : -result);
    const std::lock_guard lock(mutex_);
    in_flight_.erase(id);
    submit_waiting();
    if (stopping_ && in_flight_.empty()) submit_stop();
  }

  ReadDescriptor file_;
  size_t depth_;
  io_uring ring_{};
  Completion completion_;
  std::mutex mutex_;  // the submission side of the ring and all below; only the thread takes completions
  std::deque<Progress> waiting_;
  std::unordered_map<uint64_t, Progress> in_flight_;
  uint64_t next_id_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<BlockReader> make_uring_reader(const std::filesystem::path& path,
                                               const ExpertReaderConfig& config) {
  return std::make_unique<UringReader>(path, config);
}

}  // namespace smoe
