#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <string>

#include "wait_counter.h"

namespace smoe::testing {

// The warnings of the backward pass, which runs in threads of its own, are handed to the caller's handler.
struct WaitCounter::State : c10::WarningHandler {
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("synchronizing CUDA operation") != std::string::npos) {
      ++num_waits;
    } else if (previous_handler != nullptr) {
      previous_handler->process(warning);
    }
  }

  std::atomic<int64_t> num_waits = 0;
  c10::WarningHandler* previous_handler = nullptr;
  bool warned_always = false;
};

WaitCounter::WaitCounter() : state_(std::make_unique<State>()) {
  state_->previous_handler = c10::WarningUtils::get_warning_handler();
  state_->warned_always = c10::WarningUtils::get_warnAlways();
  c10::WarningUtils::set_warning_handler(state_.get());
  c10::WarningUtils::set_warnAlways(true);
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_WARN);
}

WaitCounter::~WaitCounter() {
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
  c10::WarningUtils::set_warnAlways(state_->warned_always);
  c10::WarningUtils::set_warning_handler(state_->previous_handler);
}

int64_t WaitCounter::num_waits() const { return state_->num_waits; }

}  // namespace smoe::testing
