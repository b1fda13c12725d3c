#include "smoe/distributed/message_board.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "message_board_impl.h"
#include "smoe/core/error.h"
#include "without_trace.h"

namespace smoe {

MessageBoard::MessageBoard(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MessageBoard::~MessageBoard() = default;

void MessageBoard::publish(const std::string& key, const std::string& text) {
  try {
    impl_->store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
  } catch (const std::exception& error) {
    throw Error(fmt::format("the message {} cannot be left in the store of the job: {}", key,
                            without_stack_trace(error.what())));
  }
}

std::string MessageBoard::await(const std::string& key) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLongestPause{200};
  try {
    for (milliseconds pause{2}; !impl_->store->check({key}); pause = std::min(pause * 2, kLongestPause)) {
      // The store may be gone before the watch ends this process, and the reason with it.
      const std::string reason = impl_->watch->known_reason();
      SMOE_CHECK(Error, reason.empty(), "the job ends because of {}", reason);
      SMOE_CHECK(Error, !impl_->watch->has_failed(), "another process of the job has failed");
      std::this_thread::sleep_for(pause);
    }
    const std::vector<uint8_t> bytes = impl_->store->get(key);
    return {bytes.begin(), bytes.end()};
  } catch (const std::exception& error) {
    throw Error(
        fmt::format("no answer to {} in the store of the job: {}", key, without_stack_trace(error.what())));
  }
}

}  // namespace smoe
