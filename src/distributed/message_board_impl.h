// What a message board works with.
#pragma once

#include <chrono>
#include <memory>

#include "failure_watch.h"
#include "process_groups.h"
#include "smoe/distributed/message_board.h"

namespace smoe {

struct MessageBoard::Impl {
  StorePointer store;  // a connection of its own: a call on a shared one would wait for the others'
  StorePointer signs;  // the same connection, where the watch writes
  std::shared_ptr<FailureWatch> watch;
  std::chrono::milliseconds longest_silence{0};
};

}  // namespace smoe
