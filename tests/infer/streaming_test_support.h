// Small packages and readers that fail on purpose, for the tests of streamed experts.
#pragma once

#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "model/model_test_support.h"
#include "smoe/infer/expert_reader.h"
#include "smoe/infer/expert_store.h"
#include "smoe/infer/streaming_export.h"
#include "smoe/infer/streaming_model.h"
#include "temporary_folder.h"

namespace smoe::testing {

inline constexpr ExpertBackend kAllBackends[] = {ExpertBackend::kIoUring, ExpertBackend::kThreads,
                                                 ExpertBackend::kMmap};

// Buffered, because a folder for temporary files may lie on a file system without direct reads.
inline ExpertStoreConfig store_config(ExpertBackend backend = ExpertBackend::kThreads) {
  ExpertStoreConfig config;
  config.reader.backend = backend;
  config.reader.io = ExpertIo::kBuffered;
  config.reader.num_threads = 2;
  return config;
}

// Passes reads on to another reader and reports the failures it was told to.
class FaultyReader final : public BlockReader {
 public:
  explicit FaultyReader(std::unique_ptr<BlockReader> inner) : inner_(std::move(inner)) {}

  // The next `count` reads of the block at `offset` fail.
  void fail(int64_t offset, int64_t count) {
    const std::lock_guard lock(mutex_);
    failures_[offset] = count;
  }
  int64_t num_reads() const { return num_reads_; }

  void set_completion(Completion completion) override {
    inner_->set_completion([this, completion](uint64_t ticket, int error) {
      completion(ticket, take_failure(ticket) ? EIO : error);
    });
  }
  void start(const std::vector<BlockRead>& reads) override {
    {
      const std::lock_guard lock(mutex_);
      for (const BlockRead& read : reads) offset_of_ticket_[read.ticket] = read.offset;
    }
    num_reads_ += std::ssize(reads);
    inner_->start(reads);
  }
  bool owns_memory() const override { return inner_->owns_memory(); }
  const std::byte* block(int64_t offset) const override { return inner_->block(offset); }
  void drop(int64_t offset, int64_t num_bytes) override { inner_->drop(offset, num_bytes); }

 private:
  bool take_failure(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    const auto found = failures_.find(offset_of_ticket_.at(ticket));
    if (found == failures_.end() || found->second == 0) return false;
    --found->second;
    return true;
  }

  std::mutex mutex_;
  std::map<int64_t, int64_t> failures_;
  std::map<uint64_t, int64_t> offset_of_ticket_;
  std::atomic<int64_t> num_reads_ = 0;
  std::unique_ptr<BlockReader> inner_;  // last: its threads call back
};

// A tiny model, and a package made of it.
struct PackagedModel {
  explicit PackagedModel(const ModelConfig& config, ExpertEncoding encoding = ExpertEncoding::kFloat32)
      : model(tiny_model(config)) {
    export_streaming_package(model, folder / "package", encoding);
  }
  std::filesystem::path path() const { return folder / "package"; }
  StreamingOptions options(int64_t num_slots, const ExpertStoreConfig& store = store_config()) const {
    return {path(), num_slots * StreamingPackage(path()).layout().block_bytes, store};
  }

  TemporaryFolder folder;
  Model model;
};

}  // namespace smoe::testing
