#include "smoe/core/available_cores.h"

#include <sched.h>

#include <algorithm>
#include <memory>
#include <thread>

namespace smoe {

int64_t available_cores() {
  // The kernel refuses a set that is smaller than its own, so its size is searched for.
  for (int num_bits = CPU_SETSIZE; num_bits <= (1 << 20); num_bits *= 2) {
    const size_t size = CPU_ALLOC_SIZE(num_bits);
    const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(num_bits), free_set);
    if (set != nullptr && ::sched_getaffinity(0, size, set.get()) == 0) {
      return std::max<int64_t>(1, CPU_COUNT_S(size, set.get()));
    }
  }
  return std::max<int64_t>(1, std::thread::hardware_concurrency());
}

}  // namespace smoe
