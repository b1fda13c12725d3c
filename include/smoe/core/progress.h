// A progress bar with rate and time left, for work that takes more than a moment.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace smoe {

// What a progress bar shows.
struct ProgressState {
  std::string title;
  std::string unit;
  int64_t done = 0;
  int64_t total = 0;  // 0: unknown
  double elapsed_s = 0.0;
};

// One line of at most `width` columns: title, bar, per cent, counts, rate, time left. Parts that do
// not fit are left out, the bar first.
std::string progress_line(const ProgressState& state, size_t width);

// Draws on standard error, at most ten times a second, and only where standard error is a terminal;
// elsewhere it does nothing. Thread-safe.
class ProgressBar {
 public:
  // `total` in `unit`s (for example "documents", "bytes"); 0 means unknown: no bar, only a count.
  ProgressBar(std::string title, int64_t total, std::string unit);
  // Clears the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void advance(int64_t amount = 1);

 private:
  void draw();

  ProgressState state_;
  bool visible_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_draw_;
  std::mutex mutex_;
};

// "2d 03h", "1h 02m", "3m 20s", "12s": a duration in seconds for people.
std::string format_duration(double seconds);

// "1.23 GiB", "512 B": a size in bytes for people.
std::string format_bytes(double bytes);

// "11.9B", "1.23M", "456": a count for people.
std::string format_count(double count);

}  // namespace smoe
