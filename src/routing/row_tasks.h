// How many rows of experts make a task for a thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace smoe {

// Waking a thread takes as long as some ten thousand entries.
inline int64_t rows_per_task(int64_t num_experts) {
  constexpr int64_t kEntriesPerTask = int64_t{1} << 14;
  return std::max<int64_t>(1, kEntriesPerTask / std::max<int64_t>(1, num_experts));
}

}  // namespace smoe
