// A job of two nodes: two network namespaces that a pair of virtual Ethernet devices joins, so that there are
// two loopback interfaces, two addresses and a link that can go down.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "process_group_support.h"
#include "run_comparison.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::ChildProcess;
using testing::Environment;
using ::testing::HasSubstr;

constexpr const char* kProgram = SMOE_BINARY_DIR "/bin/smoe-train";
constexpr double kLimit = 120.0;
constexpr double kTimeout = 8.0;
constexpr const char* kHead = "10.213.77.1";
constexpr const char* kPort = "29417";  // of namespaces of their own, where nobody else has one

// The namespaces, taken down with the object.
class TwoNodes {
 public:
  TwoNodes() : prefix_("smoe" + std::to_string(::getpid())) {
    if (find_ip().empty()) return;
    is_up_ = run("netns add " + node(0)) && run("netns add " + node(1)) &&
             run("link add " + link(0) + " netns " + node(0) + " type veth peer name " + link(1) + " netns " +
                 node(1));
    for (const int i : {0, 1}) {
      const std::string inside = "-n " + node(i) + " ";
      is_up_ = is_up_ && run(inside + "link set lo up") &&
               run(inside + "addr add 10.213.77." + std::to_string(i + 1) + "/24 dev " + link(i)) &&
               run(inside + "link set " + link(i) + " up");
    }
  }
  ~TwoNodes() {
    for (const int i : {0, 1}) run("netns del " + node(i));  // and with it its end of the link
  }
  TwoNodes(const TwoNodes&) = delete;
  TwoNodes& operator=(const TwoNodes&) = delete;

  bool is_up() const { return is_up_; }
  std::unique_ptr<ChildProcess> start(int node_rank, std::vector<std::string> command,
                                      const Environment& variables, const fs::path& output) const {
    command.insert(command.begin(), {find_ip(), "netns", "exec", node(node_rank)});
    return std::make_unique<ChildProcess>(command, variables, output);
  }
  // As torchrun would start it with one process a node.
  std::unique_ptr<ChildProcess> start_rank(int node_rank, const std::vector<std::string>& command,
                                           const fs::path& output) const {
    const std::string rank = std::to_string(node_rank);
    const Environment variables = {{"RANK", rank},
                                   {"LOCAL_RANK", "0"},
                                   {"WORLD_SIZE", "2"},
                                   {"LOCAL_WORLD_SIZE", "1"},
                                   {"MASTER_ADDR", kHead},
                                   {"MASTER_PORT", kPort},
                                   {"OMP_WAIT_POLICY", "passive"}};
    return start(node_rank, command, variables, output);
  }
  // Takes node 1 off the network; nobody gets a packet any more, not even one that closes a connection.
  bool cut() const { return run("-n " + node(1) + " link set " + link(1) + " down"); }

 private:
  static std::string find_ip() {
    for (const char* path : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"}) {
      if (fs::exists(path)) return path;
    }
    return {};
  }
  static bool run(const std::string& arguments) {
    return std::system((find_ip() + " " + arguments + " >/dev/null 2>&1").c_str()) == 0;
  }
  std::string node(int i) const { return prefix_ + "n" + std::to_string(i); }
  std::string link(int i) const { return prefix_ + "l" + std::to_string(i); }

  std::string prefix_;
  bool is_up_ = false;
};

class TwoNodeRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nodes_.is_up()) GTEST_SKIP() << "needs the right to make network namespaces, and iproute2";
  }
  // Writes `config` and starts it on both nodes in the run folder `split`.
  void start(const TrainConfig& config) {
    write_file_atomically(folder_ / "config.yaml", dump_config(config));
    for (const int rank : {0, 1}) {
      ranks_.push_back(
          nodes_.start_rank(rank, command("split"), folder_ / ("rank-" + std::to_string(rank) + ".txt")));
    }
  }
  std::vector<std::string> command(const std::string& run) const {
    return {kProgram, (folder_ / "config.yaml").string(), "--set", "run_folder=" + (folder_ / run).string()};
  }
  TrainConfig config() {
    TrainConfig config = testing::tiny_run(folder_.path());
    config.steps = 5;
    config.batch_size = 7;
    config.checkpoint.every_steps = 100;
    config.optimizer.epsilon = 1e-5;
    config.distributed.bucket_mb = 0.02;
    config.distributed.timeout_seconds = 30.0;
    return config;
  }
  std::string text() const { return "--- rank 0\n" + ranks_[0]->text() + "--- rank 1\n" + ranks_[1]->text(); }
  testing::TemporaryFolder folder_;
  TwoNodes nodes_;
  std::vector<std::unique_ptr<ChildProcess>> ranks_;
};

TEST_F(TwoNodeRun, EqualsThatOfAProcessOnItsOwn) {
  start(config());
  for (const auto& rank : ranks_) ASSERT_EQ(rank->wait(kLimit), 0) << text();
  ChildProcess alone(command("alone"), {}, folder_ / "alone.txt");
  ASSERT_EQ(alone.wait(kLimit), 0) << alone.text();
  const auto expected = testing::metrics(folder_ / "alone"), found = testing::metrics(folder_ / "split");
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    testing::compare(expected[i], found[i], "line " + std::to_string(i));
  EXPECT_LT(testing::largest_weight_difference(folder_ / "alone", folder_ / "split"), testing::kWeightBound);
}

TEST_F(TwoNodeRun, EndsOnBothNodesInTimeWhenTheLinkGoesDown) {
  TrainConfig endless = config();
  endless.steps = 100000;
  endless.distributed.timeout_seconds = kTimeout;
  start(endless);
  const fs::path metrics = folder_ / "split" / "metrics.jsonl";
  const auto begun = std::chrono::steady_clock::now();
  while (!fs::exists(metrics) || fs::file_size(metrics) == 0) {
    ASSERT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60)) << text();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(nodes_.cut());
  const auto cut = std::chrono::steady_clock::now();
  for (const auto& rank : ranks_) EXPECT_EQ(rank->wait(kLimit), 1) << text();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - cut).count();
  EXPECT_LT(seconds, kTimeout + 1.0) << text();
  EXPECT_THAT(ranks_[0]->text(), AllOf(HasSubstr("rank 0 of 2: operation `"), HasSubstr("of step "),
                                       HasSubstr("rank 1 does not answer any more")));
  // Rank 0 holds the store that the signs of life are in.
  EXPECT_THAT(ranks_[1]->text(), AllOf(HasSubstr("rank 1 of 2: operation `"), HasSubstr("of step "),
                                       HasSubstr("because of rank 0, which")));
}

// Only the agent of the killed rank counts this restart; the other one sees a change of members.
TEST_F(TwoNodeRun, GoesOnWithOneRestartOfTorchrunAfterARankOfOneNodeWasKilled) {
  const std::string torchrun = testing::find_torchrun();
  if (torchrun.empty())
    GTEST_SKIP() << "no torchrun works here (SMOE_TORCH_ROUTE=full tools/setup.sh, or set SMOE_TORCHRUN)";
  TrainConfig saving = config();
  saving.steps = 60;
  saving.checkpoint.every_steps = 1;
  saving.validate_every_steps = 0;
  saving.distributed.timeout_seconds = kTimeout;
  write_file_atomically(folder_ / "config.yaml", dump_config(saving));
  testing::LoopbackJob straight(command("straight"), 2, folder_ / "straight-logs");
  for (const int status : straight.wait(kLimit)) ASSERT_EQ(status, 0) << straight.text();
  for (const int node : {0, 1}) {
    std::vector<std::string> words = {torchrun,
                                      "--no-python",
                                      "--nnodes=2",
                                      "--nproc-per-node=1",
                                      "--max-restarts=1",
                                      "--rdzv-backend=c10d",
                                      std::string("--rdzv-endpoint=") + kHead + ":" + kPort,
                                      node == 0 ? "--rdzv-conf=is_host=1" : "--rdzv-conf=is_host=0",
                                      "--local-addr=10.213.77." + std::to_string(node + 1)};
    for (const std::string& word : command("split")) words.push_back(word);
    words.push_back("--resume");
    ranks_.push_back(nodes_.start(node, words, {{"OMP_WAIT_POLICY", "passive"}},
                                  folder_ / ("agent-" + std::to_string(node) + ".txt")));
  }
  const fs::path checkpoints = folder_ / "split" / "checkpoints";
  const auto begun = std::chrono::steady_clock::now();
  while (list_checkpoints(checkpoints).empty()) {
    ASSERT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60)) << text();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::vector<pid_t> victims = testing::descendants(ranks_[1]->id(), "smoe-train");
  ASSERT_EQ(victims.size(), 1) << text();
  ::kill(victims.front(), SIGKILL);
  for (const auto& agent : ranks_) EXPECT_EQ(agent->wait(kLimit), 0) << text();
  EXPECT_EQ(testing::largest_weight_difference(folder_ / "straight", folder_ / "split"), 0.0);
}

}  // namespace
}  // namespace smoe
