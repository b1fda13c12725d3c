#include "smoe/infer/expert_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "expert_reader_backends.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace smoe {
namespace {

// A queue of reads that a pool of threads works off in order.
class PooledReader : public BlockReader {
 public:
  void set_completion(Completion completion) override { completion_ = std::move(completion); }

  void start(const std::vector<BlockRead>& reads) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.insert(queue_.end(), reads.begin(), reads.end());
    }
    wake_.notify_all();
  }

 protected:
  // 0 or an errno.
  virtual int read(const BlockRead& read) = 0;

  void start_threads(int64_t count) {
    for (int64_t i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  }
  // For the destructors of the derived classes: the threads call `read`.
  void stop_threads() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const BlockRead next = queue_.front();
      queue_.pop_front();
      lock.unlock();
      completion_(next.ticket, read(next));
      lock.lock();
    }
  }

  Completion completion_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<BlockRead> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class ThreadReader final : public PooledReader {
 public:
  ThreadReader(const std::filesystem::path& path, const ExpertReaderConfig& config) : file_(path, config.io) {
    start_threads(config.num_threads);
  }
  ~ThreadReader() override { stop_threads(); }

 private:
  int read(const BlockRead& read) override {
    int64_t done = 0;
    while (done < read.num_bytes) {
      const ssize_t got = ::pread(file_.number(), read.slot + done,
                                  static_cast<size_t>(read.num_bytes - done), read.offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno;
      if (got == 0) return EIO;  // the file was cut short while it was open
      done += got;
    }
    return 0;
  }

  ReadDescriptor file_;
};

// Blocks are faulted in by the pool, so that the computing thread meets neither page faults nor SIGBUS.
class MapReader final : public PooledReader {
 public:
  MapReader(const std::filesystem::path& path, const ExpertReaderConfig& config) : file_(path) {
    const auto bytes = file_.bytes();
    ::madvise(start_of(0), bytes.size(), MADV_RANDOM);  // no reading ahead into neighbours
    if (!bytes.empty() && ::madvise(start_of(0), 4096, MADV_POPULATE_READ) != 0 && errno == EINVAL) {
      throw ConfigError(
          "expert backend mmap needs Linux 5.14 or later (MADV_POPULATE_READ); use the backend threads");
    }
    start_threads(config.num_threads);
  }
  ~MapReader() override { stop_threads(); }

  bool owns_memory() const override { return true; }
  const std::byte* block(int64_t offset) const override { return file_.bytes().data() + offset; }
  void drop(int64_t offset, int64_t num_bytes) override {
    ::madvise(start_of(offset), static_cast<size_t>(num_bytes), MADV_DONTNEED);
  }

 private:
  std::byte* start_of(int64_t offset) const { return const_cast<std::byte*>(file_.bytes().data()) + offset; }

  int read(const BlockRead& read) override {
    const auto size = static_cast<size_t>(read.num_bytes);
    while (::madvise(start_of(read.offset), size, MADV_POPULATE_READ) != 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return errno == EFAULT ? EIO : errno;
    }
    return 0;
  }

  MappedFile file_;
};

}  // namespace

ReadDescriptor::ReadDescriptor(const std::filesystem::path& path, ExpertIo io)
    : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (io == ExpertIo::kDirect ? O_DIRECT : 0))) {
  SMOE_CHECK(ConfigError, number_ >= 0 || io != ExpertIo::kDirect || errno != EINVAL,
             "{}: the file system does not support direct reads (O_DIRECT); set io to buffered, or keep the "
             "package on "
             "another disk",
             path.string());
  SMOE_CHECK(DataError, number_ >= 0, "{}: cannot open the file: {}", path.string(), std::strerror(errno));
}

ReadDescriptor::~ReadDescriptor() {
  if (number_ >= 0) ::close(number_);
}

std::unique_ptr<BlockReader> make_thread_reader(const std::filesystem::path& path,
                                                const ExpertReaderConfig& config) {
  return std::make_unique<ThreadReader>(path, config);
}

std::unique_ptr<BlockReader> make_map_reader(const std::filesystem::path& path,
                                             const ExpertReaderConfig& config) {
  return std::make_unique<MapReader>(path, config);
}

std::unique_ptr<BlockReader> make_block_reader(const std::filesystem::path& path,
                                               const ExpertReaderConfig& config) {
  switch (config.backend) {
    case ExpertBackend::kIoUring:
      return make_uring_reader(path, config);
    case ExpertBackend::kThreads:
      return make_thread_reader(path, config);
    case ExpertBackend::kMmap:
      return make_map_reader(path, config);
  }
  throw std::logic_error("make_block_reader: unknown backend");
}

}  // namespace smoe
