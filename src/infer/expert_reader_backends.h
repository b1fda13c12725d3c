// What the backends of make_block_reader share: the opened file, and one factory each.
#pragma once

#include <filesystem>
#include <memory>

#include "smoe/infer/expert_reader.h"

namespace smoe {

// An open file descriptor.
class ReadDescriptor {
 public:
  ReadDescriptor(const std::filesystem::path& path, ExpertIo io);
  ~ReadDescriptor();
  ReadDescriptor(const ReadDescriptor&) = delete;
  ReadDescriptor& operator=(const ReadDescriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_ = -1;
};

std::unique_ptr<BlockReader> make_uring_reader(const std::filesystem::path& path,
                                               const ExpertReaderConfig& config);
std::unique_ptr<BlockReader> make_thread_reader(const std::filesystem::path& path,
                                                const ExpertReaderConfig& config);
std::unique_ptr<BlockReader> make_map_reader(const std::filesystem::path& path,
                                             const ExpertReaderConfig& config);

}  // namespace smoe
