// The diagnosis in jobs that are too large to be started: their signs of life are written by this test.
#include "failure_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace smoe {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kWorldSize = 4096;
constexpr auto kMargin = 1500ms;

// Signs of life of all ranks but 0, which the watch under test writes.
class Peers {
 public:
  Peers(c10d::Store& store, int64_t silent) : store_(store), silent_(silent) {
    for (int64_t rank = 1; rank < kWorldSize; ++rank) write(rank, 0);
    thread_ = std::thread([this] {
      for (int64_t count = 1; !stop_; ++count) {
        for (int64_t rank = 1; rank < kWorldSize; ++rank) {
          if (rank != silent_) write(rank, count);
        }
        std::this_thread::sleep_for(kMargin / 10);
      }
    });
  }
  ~Peers() {
    stop_ = true;
    thread_.join();
  }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

 private:
  void write(int64_t rank, int64_t count) {
    const std::string text = nlohmann::json({count, 8, 3, "gradient bucket 2 of 9"}).dump();
    store_.set("sign/" + std::to_string(rank), std::vector<uint8_t>(text.begin(), text.end()));
  }

  c10d::Store& store_;
  int64_t silent_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::string diagnose(int64_t silent) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  LaunchInfo launch;
  launch.world_size = kWorldSize;
  const Peers peers(*store, silent);
  FailureWatch watch(store, launch, kMargin);
  watch.begin("gradient bucket 2 of 9");
  return watch.diagnose();
}

TEST(FailureWatch, NamesTheSilentRankOfThousands) {
  EXPECT_THAT(diagnose(777), AllOf(HasSubstr("rank 777 does not answer any more"), HasSubstr("step 3"),
                                   HasSubstr("`gradient bucket 2 of 9`"), Not(HasSubstr("; rank"))));
}

TEST(FailureWatch, AccusesNobodyOfThousandsThatAllLive) {
  EXPECT_THAT(diagnose(-1), HasSubstr("no rank that the signs of life tell apart"));
}

}  // namespace
}  // namespace smoe
