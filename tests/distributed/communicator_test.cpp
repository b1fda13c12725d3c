// Each test starts this program again as the ranks of a job; they run the tests called DISABLED_Rank.
#include "smoe/distributed/communicator.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "process_group_support.h"
#include "smoe/core/error.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::Environment;
using ::testing::HasSubstr;
using testing::LoopbackJob;
using ::testing::Not;

constexpr double kTimeout = 6.0;
constexpr double kLimit = 30.0;

DistributedConfig test_config() {
  DistributedConfig config;
  config.timeout_seconds = kTimeout;
  return config;
}

std::shared_ptr<Communicator> connect() {
  at::set_num_threads(1);
  return Communicator::connect(read_launch_info(), test_config(), at::kCPU);
}

LoopbackJob start(const std::string& test, int world_size, const testing::TemporaryFolder& folder) {
  return LoopbackJob(
      {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_Rank." + test},
      world_size, folder.path());
}

// What an operation of this rank throws.
template <class Operation>
std::string failure_of(const Operation& operation) {
  try {
    operation();
  } catch (const Error& error) {
    return error.what();
  }
  return "no failure";
}

// ---- run by the ranks -------------------------------------------------------------------------

TEST(DISABLED_Rank, MessagesBesideOperations) {
  const auto all = connect();
  const auto board = all->message_board("test");
  std::vector<std::string> heard;
  // A board may be waited for while another thread runs operations.
  std::thread thread([&] {
    for (int64_t rank = 0; rank < all->world_size(); ++rank)
      heard.push_back(board->await("from " + std::to_string(rank), rank));
  });
  const at::Tensor sum = at::ones({4});
  for (int i = 0; i < 20; ++i) all->all_reduce_sum(sum.fill_(1.0), "sum");
  all->message_board("test")->publish("from " + std::to_string(all->rank()), std::string("a\0b", 3));
  thread.join();
  EXPECT_THAT(heard, Each(std::string("a\0b", 3)));
  EXPECT_EQ(static_cast<int64_t>(heard.size()), all->world_size());
}

TEST(DISABLED_Rank, Collectives) {
  const auto all = connect();
  const int64_t world = all->world_size();
  const double rank = static_cast<double>(all->rank());
  const at::Tensor sum = at::full({3}, rank + 1.0, at::kDouble);
  all->all_reduce_sum(sum, "sum");
  EXPECT_EQ(sum[1].item<double>(), static_cast<double>(world * (world + 1)) / 2.0);
  const at::Tensor most = at::full({1}, all->rank(), at::kLong);
  all->all_reduce_max(most, "max");
  EXPECT_EQ(most.item<int64_t>(), world - 1);

  const at::Tensor whole = at::arange(2 * world, at::kFloat) + static_cast<float>(rank);
  const at::Tensor part = at::zeros({2}, at::kFloat);
  all->reduce_scatter_sum(part, whole, "scatter");
  const double ranks = static_cast<double>(world * (world - 1)) / 2.0;
  EXPECT_EQ(part[1].item<double>(), static_cast<double>(world) * (2.0 * rank + 1.0) + ranks);
  const at::Tensor gathered = at::zeros({2 * world}, at::kFloat);
  all->all_gather(gathered, part, "gather");
  for (int64_t i = 0; i < world; ++i) {
    EXPECT_EQ(gathered[2 * i].item<double>(), static_cast<double>(world * 2 * i) + ranks);
  }
  const at::Tensor in_place = at::full({3 * world}, -1.0, at::kFloat);
  in_place.narrow(0, 3 * all->rank(), 3).fill_(rank);
  all->all_gather(in_place, in_place.narrow(0, 3 * all->rank(), 3), "gather in place");
  for (int64_t i = 0; i < 3 * world; ++i) EXPECT_EQ(in_place[i].item<double>(), static_cast<double>(i / 3));
  const at::Tensor told = at::full({2}, rank, at::kDouble);
  all->broadcast(told, world - 1, "broadcast");
  EXPECT_EQ(told[0].item<double>(), static_cast<double>(world - 1));
  all->barrier("end");
}

TEST(DISABLED_Rank, OperationsUnderWayAtOnce) {
  const auto all = connect();
  std::vector<at::Tensor> tensors;
  std::vector<PendingOperation> pending;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(at::full({1000 + i}, static_cast<double>(i), at::kFloat));
    pending.push_back(all->start_all_reduce_sum(tensors.back(), "sum " + std::to_string(i)));
  }
  for (PendingOperation& operation : pending) operation.wait();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(tensors[static_cast<size_t>(i)].max().item<double>(),
              static_cast<double>(i * all->world_size()));
  }
}

TEST(DISABLED_Rank, Strings) {
  const auto all = connect();
  const std::vector<std::string> texts =
      all->all_gather_strings(std::string(static_cast<size_t>(all->rank() * 3), 'x'), "texts");
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::string(3 * i, 'x'));
  EXPECT_EQ(all->all_gather_strings("", "nothing").size(), texts.size());
}

TEST(DISABLED_Rank, Subgroups) {
  const auto all = connect();
  const int64_t half = all->world_size() / 2;
  const int64_t first = all->rank() / half * half;
  std::vector<int64_t> near, far;
  for (int64_t i = 0; i < half; ++i) near.push_back(first + i);
  for (int64_t rank = all->rank() % half; rank < all->world_size(); rank += half) far.push_back(rank);
  const auto group = all->subgroup(near, "node");
  const auto across = all->subgroup(far, "across");
  EXPECT_EQ(group->rank(), all->rank() - first);
  const at::Tensor sum = at::full({1}, all->rank(), at::kLong);
  group->all_reduce_sum(sum, "sum");
  EXPECT_EQ(sum.item<int64_t>(), half * first + half * (half - 1) / 2);
  across->all_reduce_sum(sum, "sum");
  EXPECT_EQ(sum.item<int64_t>(), all->world_size() * (all->world_size() - 1) / 2);
}

// Rank 1 dies or stops while the others wait for it.
void lose_rank_one(int signal, const std::string& says) {
  const auto all = connect();
  all->set_step(7);
  all->barrier("before");
  if (all->rank() == 1) ::raise(signal);
  const at::Tensor tensor = at::zeros({1 << 20}, at::kFloat);
  const std::string message = failure_of([&] { all->all_reduce_sum(tensor, "gradients"); });
  EXPECT_THAT(message,
              AllOf(HasSubstr("`gradients`"), HasSubstr("step 7"), HasSubstr("rank 1"), HasSubstr(says)));
}
TEST(DISABLED_Rank, Killed) { lose_rank_one(SIGKILL, "does not answer any more"); }
TEST(DISABLED_Rank, Stopped) { lose_rank_one(SIGSTOP, "does not answer any more"); }

// Rank 0 holds the store.
TEST(DISABLED_Rank, KilledHead) {
  const auto all = connect();
  all->barrier("before");
  if (all->rank() == 0) ::raise(SIGKILL);
  const std::string message = failure_of([&] { all->barrier("gradients"); });
  EXPECT_THAT(message, HasSubstr("rank 0"));
}
TEST(DISABLED_Rank, StoppedHead) {
  const auto all = connect();
  all->barrier("before");
  if (all->rank() == 0) ::raise(SIGSTOP);
  const std::string message = failure_of([&] { all->barrier("gradients"); });
  EXPECT_THAT(message, HasSubstr("rank 0"));
}

// Rank 1 is lost while the others wait for a message of its, and no operation runs.
void lose_the_author(int signal) {
  const auto all = connect();
  const auto board = all->message_board("test");
  all->set_step(7);
  all->barrier("before");
  if (all->rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for a sign of life with the step
    ::raise(signal);
  }
  const std::string message = failure_of([&] { board->await("report", 1); });
  EXPECT_THAT(message, AllOf(HasSubstr("no answer to report"), HasSubstr("rank 1 does not answer any more"),
                             HasSubstr("step 7"), HasSubstr("`before`")));
}
TEST(DISABLED_Rank, KilledAuthor) { lose_the_author(SIGKILL); }
TEST(DISABLED_Rank, StoppedAuthor) { lose_the_author(SIGSTOP); }

// A message may take longer than the timeout while its author lives.
TEST(DISABLED_Rank, SlowAuthor) {
  const auto all = connect();
  const auto board = all->message_board("test");
  if (all->rank() == 1) {
    std::this_thread::sleep_for(std::chrono::duration<double>(1.5 * kTimeout));
    board->publish("report", "done");
  }
  EXPECT_EQ(board->await("report", 1), "done");
}

TEST(DISABLED_Rank, Busy) {
  const auto all = connect();
  if (all->rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(3.0 * kTimeout));
  const std::string message = failure_of([&] { all->barrier("gradients"); });
  EXPECT_THAT(message, AllOf(HasSubstr("rank 1 lives, but has not come to this operation")));
}

TEST(DISABLED_Rank, GivesUp) {
  const auto all = connect();
  if (all->rank() == 1) {
    all->report_failure("the disk is full");
    return;
  }
  EXPECT_THAT(failure_of([&] { all->barrier("gradients"); }),
              HasSubstr("rank 1, which failed: the disk is full"));
}

// ---- the tests ----------------------------------------------------------------------------------

class Ranks : public ::testing::Test {
 protected:
  void all_succeed(const std::string& test, int world_size) {
    LoopbackJob job = start(test, world_size, folder_);
    EXPECT_THAT(job.wait(kLimit), Each(0)) << job.text();
  }
  // All but rank `lost` end by themselves, with their expectations met, within the timeout.
  void others_end_in_time(const std::string& test, int world_size, size_t lost) {
    LoopbackJob job = start(test, world_size, folder_);
    const auto begun = std::chrono::steady_clock::now();
    for (size_t rank = 0; rank < job.size(); ++rank) {
      if (rank != lost) {
        EXPECT_EQ(job.rank(rank).wait(kLimit), 0) << "rank " << rank << ": " << job.rank(rank).text();
      }
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    EXPECT_LT(seconds, kTimeout + 3.0) << "start of the program included";
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Ranks, LeaveMessagesBesideOperations) { all_succeed("MessagesBesideOperations", 3); }

TEST_F(Ranks, AgreeOnTheResultsOfCollectives) {
  all_succeed("Collectives", 2);
  all_succeed("Collectives", 3);
}
TEST_F(Ranks, KeepOperationsApartThatAreUnderWayAtOnce) { all_succeed("OperationsUnderWayAtOnce", 2); }
TEST_F(Ranks, TellEachOtherTextsOfAnyLength) { all_succeed("Strings", 3); }
TEST_F(Ranks, FormSubgroups) { all_succeed("Subgroups", 4); }
TEST_F(Ranks, NameTheOneThatWasKilled) { others_end_in_time("Killed", 4, 1); }
TEST_F(Ranks, NameTheOneThatWasStopped) { others_end_in_time("Stopped", 3, 1); }
TEST_F(Ranks, NoticeThatTheHeadWasKilled) { others_end_in_time("KilledHead", 3, 0); }
TEST_F(Ranks, NoticeThatTheHeadWasStopped) { others_end_in_time("StoppedHead", 3, 0); }
TEST_F(Ranks, NameTheKilledOneWhoseMessageTheyWaitFor) { others_end_in_time("KilledAuthor", 3, 1); }
TEST_F(Ranks, NameTheStoppedOneWhoseMessageTheyWaitFor) { others_end_in_time("StoppedAuthor", 3, 1); }
TEST_F(Ranks, WaitForAMessageAsLongAsItsAuthorLives) { all_succeed("SlowAuthor", 3); }
TEST_F(Ranks, NameTheOneThatNeverComes) { others_end_in_time("Busy", 3, 1); }
TEST_F(Ranks, RepeatTheReasonOfTheOneThatFailed) { others_end_in_time("GivesUp", 3, 1); }

TEST_F(Ranks, NameThoseThatNeverArrive) {
  // Only rank 0 of three is started.
  const Environment variables = testing::loopback_ranks(3).front();
  testing::ChildProcess first(
      {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_Rank.Strings"},
      variables, folder_ / "first.txt");
  EXPECT_EQ(first.wait(kLimit), 1);
  EXPECT_THAT(first.text(), HasSubstr("rank 1, 2 did not arrive within"));
}

TEST_F(Ranks, WhoeverComesLearnsWhoIsMissing) {
  const std::vector<Environment> variables = testing::loopback_ranks(3);
  std::vector<std::unique_ptr<testing::ChildProcess>> ranks;
  for (const size_t rank : {0, 1}) {
    ranks.push_back(std::make_unique<testing::ChildProcess>(
        std::vector<std::string>{"/proc/self/exe", "--gtest_also_run_disabled_tests",
                                 "--gtest_filter=DISABLED_Rank.Strings"},
        variables[rank], folder_ / (std::to_string(rank) + ".txt")));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(kLimit), 1);
  EXPECT_THAT(ranks[0]->text(), HasSubstr("rank 0 of 3: rank 2 did not arrive within"));
  EXPECT_THAT(ranks[1]->text(), AnyOf(HasSubstr("rank 1 of 3: rank 2 did not arrive within"),
                                      HasSubstr("was lost while the processes met")));
  EXPECT_THAT(ranks[1]->text(), Not(HasSubstr("frame #")));
}

// torchrun keeps its store over restarts, and agents of several nodes do not count restarts alike.
TEST_F(Ranks, MeetAgainInAStoreThatHoldsWhatAFailedStartLeft) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  Environment variables = {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"MASTER_PORT", std::to_string(store->getPort())}};
  const auto run = [&](const std::string& test, int world_size) {
    LoopbackJob job(
        {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_Rank." + test},
        world_size, folder_.path(), variables);
    const std::vector<int> statuses = job.wait(kLimit);
    EXPECT_EQ(statuses[0], 0) << job.text();
    EXPECT_EQ(statuses[1], test == "Killed" ? 128 + SIGKILL : 0) << job.text();
  };
  run("Killed", 3);
  run("Collectives", 3);
  run("Collectives", 2);
  run("Collectives", 3);
}

TEST(SingleProcess, NeedsNoPeersAndChangesNothing) {
  const auto alone = Communicator::single();
  const at::Tensor tensor = at::ones({3}, at::kFloat), copy = at::zeros({3}, at::kFloat);
  alone->all_reduce_sum(tensor, "sum");
  alone->barrier("barrier");
  alone->all_gather(copy, tensor, "gather");
  EXPECT_EQ(copy.sum().item<double>(), 3.0);
  EXPECT_EQ(alone->world_size(), 1);
  EXPECT_THAT(alone->all_gather_strings("me", "texts"), ElementsAre("me"));
}

TEST(RankRange, CoversEverythingOnceAndEvenly) {
  for (int64_t total : {0, 1, 7, 8, 100}) {
    for (int64_t world : {1, 2, 3, 8}) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < world; ++rank) {
        const RankRange range = rank_range(total, rank, world);
        EXPECT_EQ(range.begin, next);
        EXPECT_LE(std::abs(range.size() - total / world), 1);
        next = range.end;
      }
      EXPECT_EQ(next, total);
    }
  }
}

}  // namespace
}  // namespace smoe
