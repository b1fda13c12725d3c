// How smoe-bench measures: contestants take turns, so that whatever else the machine does hits all of them,
// and every time is kept twice, by the clock on the wall and in core-seconds of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace smoe {

struct Duration {
  double wall_s = 0;
  double core_s = 0;  // processor time of all threads; other processes on the machine do not add to it
};

// Runs `body` once.
Duration measure_once(const std::function<void()>& body);

// Repetitions of one contestant.
struct Samples {
  std::vector<Duration> all;

  Duration best() const;    // the smallest of each clock, which may be of two repetitions
  Duration median() const;  // of each clock
};

struct Contestant {
  std::string name;
  std::function<void()> run;
  std::function<void()> prepare = {};  // before every run, unmeasured: what must be new each time
};

// Runs every contestant once to warm up, then all of them in turn `repetitions` times.
std::vector<Samples> measure_in_turns(const std::vector<Contestant>& contestants, int64_t repetitions);

// One product of two square float32 matrices of this width counts 2 * width^3 floating-point operations.
inline constexpr int64_t kPeakMatrixWidth = 2048;
inline constexpr double kPeakMatrixFlops = 2.0 * kPeakMatrixWidth * kPeakMatrixWidth * kPeakMatrixWidth;

// A contestant that multiplies two such matrices `count` times: what the machine can do at most.
Contestant matmul_peak(int64_t count);

// Gives freed memory back to the system and begins a new peak. Returns the resident bytes that remain.
int64_t reset_peak_memory();
// The most resident bytes since reset_peak_memory(); 0 where the system does not let a process reset its
// peak.
int64_t peak_memory_since_reset();

}  // namespace smoe
