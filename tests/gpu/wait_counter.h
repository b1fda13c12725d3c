// Counts the operations that make the host wait for the GPU.
#pragma once

#include <cstdint>
#include <memory>

namespace smoe::testing {

// While it lives, LibTorch reports every operation that waits: copies to the host, sizes that depend on
// values, copies from memory that is not page-locked. One at a time; always 0 in a build without CUDA.
class WaitCounter {
 public:
  WaitCounter();
  ~WaitCounter();
  WaitCounter(const WaitCounter&) = delete;
  WaitCounter& operator=(const WaitCounter&) = delete;

  int64_t num_waits() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace smoe::testing
