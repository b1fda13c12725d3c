#include "smoe/distributed/message_board.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "message_board_impl.h"
#include "smoe/core/error.h"
#include "without_trace.h"

namespace smoe {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLongestPause{200};

// Ends a wait for a process that gives no signs of life: where all processes wait for messages, no operation
// runs into its timeout.
class SilenceClock {
 public:
  SilenceClock(const MessageBoard::Impl& board, int64_t rank)
      : board_(board), rank_(rank), interval_(board.longest_silence / kLooks) {}
  void look() {
    const auto now = steady_clock::now();
    if (now < next_look_) return;
    next_look_ = now + interval_;
    const int64_t count = board_.watch->sign_count(board_.signs, rank_);
    if (count != last_count_) {
      last_count_ = count;
      last_change_ = now;
    } else if (now - last_change_ > board_.longest_silence) {
      const std::string culprit = board_.watch->describe_silent(board_.signs, rank_);
      board_.watch->publish(culprit);
      throw Error(fmt::format("the job ends because of {}", culprit));
    }
  }

 private:
  static constexpr int kLooks = 20;
  const MessageBoard::Impl& board_;
  int64_t rank_;
  milliseconds interval_;
  int64_t last_count_ = -1;
  steady_clock::time_point last_change_ = steady_clock::now();
  steady_clock::time_point next_look_ = last_change_;
};

}  // namespace

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

std::string MessageBoard::await(const std::string& key, int64_t from) {
  SilenceClock silence(*impl_, from);
  try {
    for (milliseconds pause{2}; !impl_->store->check({key}); pause = std::min(pause * 2, kLongestPause)) {
      // The store may be gone before the watch ends this process, and the reason with it.
      const std::string reason = impl_->watch->known_reason();
      SMOE_CHECK(Error, reason.empty(), "the job ends because of {}", reason);
      SMOE_CHECK(Error, !impl_->watch->has_failed(), "another process of the job has failed");
      silence.look();
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
