#include "smoe/core/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "smoe/core/log.h"
#include "smoe/core/table.h"

namespace smoe {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval{100};
constexpr size_t kLongestBar = 30;
constexpr size_t kShortestBar = 8;

// Three significant digits; whole numbers below 1000 as they are.
std::string three_digits(double value) {
  if (value == std::trunc(value) && std::abs(value) < 1000.0) return fmt::format("{:.0f}", value);
  // The digit count follows the rounded value: 9.999 is 10.0, not 10.00.
  const double size = std::abs(value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

// `value` in the largest unit in which it does not round to less than 1.
template <size_t N>
std::string scale(double value, double step, const std::array<const char*, N>& units) {
  size_t unit = 0;
  // 999.5 would be written as 1000: it belongs to the next unit.
  while (unit + 1 < units.size() && std::abs(value) >= (step == 1000.0 ? 999.5 : 1023.5)) {
    value /= step;
    ++unit;
  }
  return three_digits(value) + units[unit];
}

size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string amount(double value, const std::string& unit) {
  return unit == "bytes" ? format_bytes(value) : format_count(value);
}

std::string bar(double share, size_t length) {
  const size_t filled = static_cast<size_t>(share * static_cast<double>(length));
  std::string text;
  for (size_t i = 0; i < length; ++i) text += i < filled ? "━" : "─";
  return text;
}

// Counts, rate and time left.
std::vector<std::string> progress_parts(const ProgressState& state) {
  const std::string unit = state.unit == "bytes" ? "" : " " + state.unit;
  std::vector<std::string> parts;
  const double done = static_cast<double>(state.done);
  const double total = static_cast<double>(state.total);
  if (state.total > 0) {
    parts.push_back(fmt::format("{}/{}{}", amount(done, state.unit), amount(total, state.unit), unit));
  } else {
    parts.push_back(amount(done, state.unit) + unit);
  }
  if (state.done > 0 && state.elapsed_s > 0.0) {
    const double rate = done / state.elapsed_s;
    parts.push_back(amount(rate, state.unit) + "/s");
    if (state.total > state.done) parts.push_back(format_duration((total - done) / rate) + " left");
  }
  return parts;
}

}  // namespace

std::string progress_line(const ProgressState& state, size_t width) {
  const double share =
      state.total > 0
          ? std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0)
          : 0.0;
  const std::string percent = state.total > 0 ? fmt::format("{:3.0f}%", std::floor(share * 100.0)) : "";
  std::string tail = percent;
  // Parts are dropped from the end until title and tail fit.
  for (const std::string& part : progress_parts(state)) {
    const std::string longer = tail + (tail.empty() ? "" : "  ") + part;
    if (display_width(state.title) + 2 + display_width(longer) > width) break;
    tail = longer;
  }
  const size_t used = display_width(state.title) + 2 + display_width(tail);
  if (state.total > 0 && used + 2 + kShortestBar <= width) {
    return fmt::format("{}  {}  {}", state.title, bar(share, std::min(kLongestBar, width - used - 2)), tail);
  }
  return used <= width ? fmt::format("{}  {}", state.title, tail) : tail;
}

ProgressBar::ProgressBar(std::string title, int64_t total, std::string unit)
    : state_{std::move(title), std::move(unit), 0, total, 0.0},
      visible_(terminal_is_interactive()),
      start_(std::chrono::steady_clock::now()),
      last_draw_(start_) {
  if (visible_) draw();
}

ProgressBar::~ProgressBar() {
  if (visible_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::advance(int64_t amount) {
  const std::lock_guard lock(mutex_);
  state_.done += amount;
  if (!visible_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_draw_ < kRedrawInterval) return;
  last_draw_ = now;
  draw();
}

void ProgressBar::draw() {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  state_.elapsed_s = elapsed.count();
  // One column is left free: a full line makes some terminals wrap.
  const std::string line = "\r\x1b[K" + progress_line(state_, terminal_width() - 1);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0.0) return "?";
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h {:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d {:02}h", whole / 86400, whole % 86400 / 3600);
}

std::string format_bytes(double bytes) {
  static constexpr std::array kUnits = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return scale(bytes, 1024.0, kUnits);
}

std::string format_count(double count) {
  static constexpr std::array kUnits = {"", "K", "M", "B", "T"};
  return scale(count, 1000.0, kUnits);
}

}  // namespace smoe
