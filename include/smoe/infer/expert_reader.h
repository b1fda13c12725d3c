// Reads blocks of a file into memory in the background, in one of several ways. Knows offsets and memory, not
// experts, caches or retries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "smoe/core/config_visitors.h"

namespace smoe {

enum class ExpertBackend {
  kIoUring,  // Linux asynchronous I/O: one thread, many reads in flight
  kThreads,  // pread on a pool of threads
  kMmap,     // the page cache is the memory: blocks are mapped, not copied
};
template <>
struct EnumNames<ExpertBackend> {
  static constexpr std::array values = {enum_name(ExpertBackend::kIoUring, "io_uring"),
                                        enum_name(ExpertBackend::kThreads, "threads"),
                                        enum_name(ExpertBackend::kMmap, "mmap")};
};

enum class ExpertIo {
  kDirect,    // O_DIRECT: from the disk to the slot, past the page cache
  kBuffered,  // through the page cache
};
template <>
struct EnumNames<ExpertIo> {
  static constexpr std::array values = {enum_name(ExpertIo::kDirect, "direct"),
                                        enum_name(ExpertIo::kBuffered, "buffered")};
};

struct ExpertReaderConfig {
  ExpertBackend backend = ExpertBackend::kIoUring;
  ExpertIo io = ExpertIo::kDirect;  // mmap is always buffered
  int64_t num_threads = 4;          // threads and mmap
  int64_t queue_depth = 32;         // io_uring: reads in flight at most
};

struct BlockRead {
  uint64_t ticket = 0;  // the caller's, given back on completion
  int64_t offset = 0;   // in bytes, a multiple of 4096
  int64_t num_bytes = 0;
  std::byte* slot = nullptr;  // 4096-aligned; null where the reader provides the memory
};

class BlockReader {
 public:
  // Called once a read, from a thread of the reader: 0 or an errno (EIO where the file ends early). May start
  // further reads; must not throw.
  using Completion = std::function<void(uint64_t ticket, int error)>;

  virtual ~BlockReader() = default;
  // Before the first start.
  virtual void set_completion(Completion completion) = 0;
  // Starts reads in this order; they may end in any. Safe to call from several threads.
  virtual void start(const std::vector<BlockRead>& reads) = 0;
  // True where blocks come into memory of the reader's own; then `block` says where, and `drop` that a block
  // is not needed any more.
  virtual bool owns_memory() const { return false; }
  virtual const std::byte* block(int64_t /*offset*/) const { return nullptr; }
  virtual void drop(int64_t /*offset*/, int64_t /*num_bytes*/) {}
};

// Destroying a reader waits for its reads. Throws ConfigError where this machine does not allow the backend
// or the file system direct reads, with the remedy; there is no silent change to another one. Throws
// DataError if the file cannot be opened.
std::unique_ptr<BlockReader> make_block_reader(const std::filesystem::path& path,
                                               const ExpertReaderConfig& config);

}  // namespace smoe
