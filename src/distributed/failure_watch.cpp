#include "failure_watch.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>

#include "smoe/core/error.h"
#include "smoe/core/log.h"
#include "without_trace.h"

namespace smoe {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kFailureKey = "failure";
constexpr size_t kMostNamedRanks = 8;
constexpr const char* kSilent = "does not answer any more: it died, was stopped or lost its network";

std::string sign_key(int64_t rank) { return fmt::format("sign/{}", rank); }

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

FailureWatch::FailureWatch(const StorePointer& store, const LaunchInfo& launch, milliseconds margin)
    : store_(store->clone()),
      other_store_(store->clone()),
      launch_(launch),
      margin_(margin),
      interval_(margin / 10) {
  beat(0);
  thread_ = std::thread([this] { run(); });
}

FailureWatch::~FailureWatch() { stop(); }

void FailureWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  condition_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FailureWatch::begin(const std::string& operation) {
  const std::lock_guard lock(mutex_);
  operation_ = operation;
  ++operations_;
}

bool FailureWatch::wait_for_stop(milliseconds time) {
  std::unique_lock lock(mutex_);
  return condition_.wait_for(lock, time, [this] { return stop_; });
}

// Writes one sign. False if the store is gone.
bool FailureWatch::beat(int64_t count) {
  nlohmann::json sign;
  {
    const std::lock_guard lock(mutex_);
    sign = {count, operations_.load(), step_.load(), operation_};
  }
  try {
    store_->set(sign_key(launch_.rank), bytes_of(sign.dump()));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void FailureWatch::run() {
  for (int64_t count = 1; !wait_for_stop(interval_); ++count) {
    try {
      // Without a store there is nothing to tell or to hear; the operations themselves will fail.
      if (!beat(count)) return;
      if (!store_->check({kFailureKey})) continue;
      const std::string reason = text_of(store_->get(kFailureKey));
      {
        const std::lock_guard lock(mutex_);
        known_reason_ = reason;
      }
      // Usually the operation that this process waits in fails too, and its error ends the process in order.
      if (wait_for_stop(margin_)) return;
      end_process(reason);
    } catch (const std::exception&) {
      return;
    }
  }
}

void FailureWatch::end_process(const std::string& reason) const {
  const std::string message = fmt::format("rank {}: ended because of {}", launch_.rank, reason);
  std::fflush(stdout);
  std::fputs(fmt::format("error: {}\n", message).c_str(), stderr);
  try {
    log_error_to_files(message);
  } catch (const std::exception&) {
    // The console has been told.
  }
  ::_exit(1);
}

FailureWatch::Sign FailureWatch::parse_sign(const std::vector<uint8_t>& bytes) {
  const auto values = nlohmann::json::parse(text_of(bytes));
  return {values[0], values[1], values[2], values[3]};
}

std::string FailureWatch::describe(int64_t rank, const Sign& sign, const char* what) {
  return fmt::format("rank {} {} (last heard of in step {}, operation `{}`)", rank, what, sign.step,
                     sign.operation);
}

int64_t FailureWatch::sign_count(const StorePointer& store, int64_t rank) const {
  const std::string key = sign_key(rank);
  return store->check({key}) ? parse_sign(store->get(key)).count : -1;
}

std::string FailureWatch::describe_silent(const StorePointer& store, int64_t rank) const {
  const std::string key = sign_key(rank);
  return describe(rank, store->check({key}) ? parse_sign(store->get(key)) : Sign{}, kSilent);
}

// All processes of a large job ask at one time, so each asks for all signs at once.
std::vector<FailureWatch::Sign> FailureWatch::read_signs(const StorePointer& store) const {
  std::vector<Sign> signs(static_cast<size_t>(launch_.world_size));
  std::vector<std::string> keys;
  for (int64_t rank = 0; rank < launch_.world_size; ++rank) keys.push_back(sign_key(rank));
  if (store->check(keys)) {
    const std::vector<std::vector<uint8_t>> values = store->multiGet(keys);
    for (size_t rank = 0; rank < signs.size(); ++rank) signs[rank] = parse_sign(values[rank]);
    return signs;
  }
  for (size_t rank = 0; rank < signs.size(); ++rank) {
    if (store->check({keys[rank]})) signs[rank] = parse_sign(store->get(keys[rank]));
  }
  return signs;
}

std::string FailureWatch::compare_signs(const StorePointer& store) const {
  if (store->check({kFailureKey})) return text_of(store->get(kFailureKey));
  const std::vector<Sign> before = read_signs(store);
  const auto deadline = steady_clock::now() + margin_ * 3 / 10;
  std::vector<Sign> now = before;
  std::vector<int64_t> silent;
  do {
    std::this_thread::sleep_for(interval_);
    if (store->check({kFailureKey})) return text_of(store->get(kFailureKey));
    now = read_signs(store);
    silent.clear();
    for (size_t rank = 0; rank < now.size(); ++rank) {
      if (now[rank].count == before[rank].count && static_cast<int64_t>(rank) != launch_.rank)
        silent.push_back(static_cast<int64_t>(rank));
    }
  } while (!silent.empty() && steady_clock::now() < deadline);

  std::vector<std::string> culprits;
  const auto accuse = [&](int64_t rank, const char* what) {
    if (culprits.size() == kMostNamedRanks) culprits.push_back("and others");
    if (culprits.size() > kMostNamedRanks) return;
    culprits.push_back(describe(rank, now[static_cast<size_t>(rank)], what));
  };
  for (const int64_t rank : silent) accuse(rank, kSilent);
  if (!culprits.empty()) return fmt::format("{}", fmt::join(culprits, "; "));
  const int64_t own = operations_;
  for (size_t rank = 0; rank < now.size(); ++rank) {
    if (now[rank].operations < own)
      accuse(static_cast<int64_t>(rank), "lives, but has not come to this operation");
  }
  if (!culprits.empty()) return fmt::format("{}", fmt::join(culprits, "; "));
  return "no rank that the signs of life tell apart (all live and have started the operation)";
}

std::string FailureWatch::known_reason() const {
  const std::lock_guard lock(mutex_);
  return known_reason_;
}

std::string FailureWatch::diagnose() {
  if (const std::string reason = known_reason(); !reason.empty()) return reason;
  // The store may be part of what failed, and a question to a stopped process is never answered: ask in a
  // thread that can be left behind.
  auto promise = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answer = promise->get_future();
  std::thread([this, promise, store = other_store_] {
    try {
      promise->set_value(compare_signs(store));
    } catch (const std::exception&) {
      promise->set_value(launch_.launcher_holds_store
                             ? "the launcher's store at " + launch_.main_address + ", which is gone"
                             : "rank 0, which is gone (it held the store of the job)");
    }
  }).detach();
  if (answer.wait_for(margin_ / 2) == std::future_status::ready) return answer.get();
  return launch_.launcher_holds_store
             ? "the launcher's store at " + launch_.main_address + ", which does not answer"
             : "rank 0, which does not answer any more (it holds the store of the job)";
}

void FailureWatch::publish(const std::string& reason) noexcept {
  failed_ = true;
  try {
    auto promise = std::make_shared<std::promise<void>>();
    std::future<void> done = promise->get_future();
    std::thread([promise, store = other_store_, reason] {
      try {
        store->compareSet(kFailureKey, std::vector<uint8_t>{}, bytes_of(reason));
      } catch (const std::exception&) {
        // Without a store the others find out by themselves.
      }
      promise->set_value();
    }).detach();
    done.wait_for(margin_ / 10);
  } catch (...) {
    // No memory for a thread: the others find out by themselves.
  }
}

}  // namespace smoe
