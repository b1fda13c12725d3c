#include "smoe/bench/measure.h"

#include <ATen/ATen.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "smoe/core/error.h"

namespace smoe {
namespace {

double seconds_of(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<double> sorted(const std::vector<Duration>& all, double Duration::*clock) {
  std::vector<double> values;
  for (const Duration& duration : all) values.push_back(duration.*clock);
  std::sort(values.begin(), values.end());
  SMOE_ASSERT(!values.empty());
  return values;
}

// A line of /proc/self/status in bytes; 0 if there is none.
int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key + ":")) continue;
    std::istringstream words(line.substr(key.size() + 1));
    int64_t kibibytes = 0;
    words >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

bool peak_was_reset = false;

}  // namespace

Duration measure_once(const std::function<void()>& body) {
  const double wall = seconds_of(CLOCK_MONOTONIC);
  const double core = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  body();
  return {seconds_of(CLOCK_MONOTONIC) - wall, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - core};
}

Duration Samples::best() const {
  return {sorted(all, &Duration::wall_s).front(), sorted(all, &Duration::core_s).front()};
}

Duration Samples::median() const {
  return {sorted(all, &Duration::wall_s)[all.size() / 2], sorted(all, &Duration::core_s)[all.size() / 2]};
}

std::vector<Samples> measure_in_turns(const std::vector<Contestant>& contestants, int64_t repetitions) {
  std::vector<Samples> samples(contestants.size());
  for (int64_t repetition = 0; repetition <= repetitions; ++repetition) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      if (contestants[i].prepare) contestants[i].prepare();
      const Duration duration = measure_once(contestants[i].run);
      if (repetition > 0) samples[i].all.push_back(duration);
    }
  }
  return samples;
}

Contestant matmul_peak(int64_t count) {
  const at::Tensor left = at::randn({kPeakMatrixWidth, kPeakMatrixWidth});
  const at::Tensor right = at::randn({kPeakMatrixWidth, kPeakMatrixWidth});
  const at::Tensor product = at::empty({kPeakMatrixWidth, kPeakMatrixWidth});
  return {"matmul", [=] {
            at::Tensor out = product;
            for (int64_t i = 0; i < count; ++i) at::mm_out(out, left, right);
          }};
}

int64_t reset_peak_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  peak_was_reset = file.good();
  return status_bytes("VmRSS");
}

int64_t peak_memory_since_reset() { return peak_was_reset ? status_bytes("VmHWM") : 0; }

}  // namespace smoe
