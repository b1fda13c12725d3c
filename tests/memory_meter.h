// Counts the bytes of tensors that are alive on the CPU, exactly and without the operating system: LibTorch
// reports every allocation to a listener of the thread, and hands it on to the backward pass.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace smoe::testing {

class MemoryMeter {
 public:
  MemoryMeter()
      : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

  // The most bytes that were alive at one time since construction, on top of what was alive then.
  int64_t peak_bytes() const { return counter_->peak.load(); }

 private:
  struct Counter : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* /*address*/, int64_t bytes, size_t /*allocated*/, size_t /*reserved*/,
                           c10::Device device) override {
      if (!device.is_cpu()) return;
      const int64_t now = alive.fetch_add(bytes) + bytes;
      peak.store(std::max(peak.load(), now));
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::atomic<int64_t> alive = 0;
    std::atomic<int64_t> peak = 0;
  };

  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace smoe::testing
