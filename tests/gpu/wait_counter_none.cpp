#include "wait_counter.h"

namespace smoe::testing {

struct WaitCounter::State {};

WaitCounter::WaitCounter() = default;
WaitCounter::~WaitCounter() = default;
int64_t WaitCounter::num_waits() const { return 0; }

}  // namespace smoe::testing
