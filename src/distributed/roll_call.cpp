#include "roll_call.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "smoe/core/error.h"
#include "without_trace.h"

namespace smoe {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Rank 0 names a session and waits for a word from everybody, which it then repeats in the roll. A process
// that reads the name of an earlier session does not find its own word in that roll, and waits for the next
// name.
constexpr const char* kSessionKey = "session";
constexpr const char* kRollKey = "roll";
constexpr size_t kMostNamedRanks = 16;
constexpr milliseconds kLongestPause{200};

std::string hello_key(int64_t rank) { return fmt::format("hello/{}", rank); }

std::string random_word() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

void set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}
std::string get_text(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

StorePointer session_store(const StorePointer& store, const std::string& session) {
  return c10::make_intrusive<c10d::PrefixStore>("session/" + session, store);
}

[[noreturn]] void refuse(const LaunchInfo& launch, const std::vector<int64_t>& missing,
                         milliseconds timeout) {
  throw Error(
      fmt::format("rank {} of {}: rank {} did not arrive within {:.0f} s (distributed.timeout_seconds). "
                  "Every process of the "
                  "job must be started, with the same MASTER_ADDR and MASTER_PORT; the log of the missing "
                  "one says why it "
                  "ended.",
                  launch.rank, launch.world_size, fmt::join(missing, ", "),
                  std::chrono::duration<double>(timeout).count()));
}

std::vector<int64_t> missing_ranks(c10d::Store& session, const LaunchInfo& launch) {
  std::vector<int64_t> missing;
  for (int64_t rank = 1; rank < launch.world_size && missing.size() < kMostNamedRanks; ++rank) {
    if (!session.check({hello_key(rank)})) missing.push_back(rank);
  }
  return missing;
}

StorePointer lead(const StorePointer& store, const LaunchInfo& launch, milliseconds timeout) {
  const std::string name = random_word();
  StorePointer session = session_store(store, name);
  set_text(*store, kSessionKey, name);
  std::vector<std::string> keys;
  for (int64_t rank = 1; rank < launch.world_size; ++rank) keys.push_back(hello_key(rank));
  try {
    session->wait(keys, timeout);
  } catch (const std::exception&) {
    refuse(launch, missing_ranks(*session, launch), timeout);
  }
  const std::vector<std::vector<uint8_t>> words = session->multiGet(keys);
  nlohmann::json roll = nlohmann::json::object();
  for (size_t i = 0; i < words.size(); ++i)
    roll[std::to_string(i + 1)] = std::string(words[i].begin(), words[i].end());
  set_text(*session, kRollKey, roll.dump());
  return session;
}

StorePointer follow(const StorePointer& store, const LaunchInfo& launch, milliseconds timeout) {
  const auto end = steady_clock::now() + timeout;
  const std::string word = random_word();
  std::string name;
  StorePointer session;  // none, or one whose roll may still come
  for (milliseconds pause{2}; steady_clock::now() < end; pause = std::min(pause * 2, kLongestPause)) {
    if (store->check({kSessionKey})) {
      if (const std::string current = get_text(*store, kSessionKey); current != name) {
        name = current;
        session = session_store(store, name);
        set_text(*session, hello_key(launch.rank), word);
      }
      if (session && session->check({kRollKey})) {
        const auto roll = nlohmann::json::parse(get_text(*session, kRollKey));
        if (roll.value(std::to_string(launch.rank), "") == word) return session;
        session = nullptr;  // of an earlier start
      }
    }
    std::this_thread::sleep_for(pause);
  }
  refuse(launch, session ? missing_ranks(*session, launch) : std::vector<int64_t>{0}, timeout);
}

}  // namespace

StorePointer call_the_roll(const StorePointer& store, const LaunchInfo& launch, milliseconds timeout) {
  try {
    return launch.rank == 0 ? lead(store, launch, timeout) : follow(store, launch, timeout);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // Rank 0, which usually holds the store, gives up a moment before the others do.
    throw Error(fmt::format(
        "rank {} of {}: the store of the job at {}:{} was lost while the processes met: {}. The log of {} "
        "says why.",
        launch.rank, launch.world_size, launch.main_address, launch.main_port,
        without_stack_trace(error.what()), launch.launcher_holds_store ? "the launcher" : "rank 0"));
  }
}

}  // namespace smoe
