#include "smoe/distributed/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "smoe/core/error.h"

namespace smoe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

LaunchInfo read(const Variables& variables) {
  return read_launch_info([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const Variables& variables) {
  try {
    read(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}
Variables without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

const Variables kTorchrun = {{"RANK", "5"},           {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "head"}, {"MASTER_PORT", "29400"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},     {"SLURM_NTASKS", "8"},
                          {"SLURM_LOCALID", "1"},    {"SLURM_JOB_NODELIST", "gpu[07-08]"},
                          {"SLURM_NODEID", "1"},     {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                          {"SLURM_JOB_ID", "123456"}};

TEST(Launch, WithoutVariablesIsASingleProcess) {
  const LaunchInfo info = read({{"PATH", "/bin"}});
  EXPECT_EQ(info.launcher, Launcher::kNone);
  EXPECT_EQ(info.world_size, 1);
  EXPECT_FALSE(info.is_distributed());
}

TEST(Launch, ReadsTorchrunsVariables) {
  const LaunchInfo info = read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_EQ(info.launcher, Launcher::kTorchrun);
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.world_size, 8);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_world_size, 4);
  EXPECT_EQ(info.main_address, "head");
  EXPECT_EQ(info.main_port, 29400);
  EXPECT_TRUE(info.launcher_holds_store);
  EXPECT_FALSE(read(kTorchrun).launcher_holds_store);
}

TEST(Launch, ReadsSlurmsVariables) {
  const LaunchInfo info = read(kSlurm);
  EXPECT_EQ(info.launcher, Launcher::kSlurm);
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.world_size, 8);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_world_size, 4);
  EXPECT_EQ(info.main_address, "gpu07");
  EXPECT_EQ(info.main_port, 20000 + 3456);
  EXPECT_FALSE(info.launcher_holds_store);
}

TEST(Launch, AnExportedHeadAddressOverridesSlurmsFirstNode) {
  const LaunchInfo info = read(with(kSlurm, {{"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "4000"}}));
  EXPECT_EQ(info.launcher, Launcher::kSlurm);
  EXPECT_EQ(info.main_address, "10.0.0.7");
  EXPECT_EQ(info.main_port, 4000);
}

TEST(Launch, OneSlurmTaskIsASingleProcess) {
  EXPECT_FALSE(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}}).is_distributed());
}

TEST(Launch, TheShellOfAnAllocationIsASingleProcess) {
  EXPECT_FALSE(read({{"SLURM_JOB_NODELIST", "gpu[1-4]"}, {"SLURM_JOB_ID", "7"}}).is_distributed());
}

TEST(Launch, RefusesPartOfTheVariablesAndNamesTheRest) {
  const std::string torchrun = refusal({{"RANK", "0"}, {"MASTER_ADDR", "head"}});
  EXPECT_THAT(torchrun, HasSubstr("RANK, MASTER_ADDR but not WORLD_SIZE, LOCAL_RANK, MASTER_PORT"));
  EXPECT_THAT(torchrun, HasSubstr("torchrun --no-python"));
  EXPECT_THAT(torchrun, HasSubstr("unset"));
  for (const auto& [name, value] : kTorchrun) {
    if (name == "LOCAL_WORLD_SIZE") continue;
    EXPECT_THAT(refusal(without(kTorchrun, name)), HasSubstr("but not " + name));
  }
  EXPECT_THAT(refusal(without(kSlurm, "SLURM_PROCID")), HasSubstr("not SLURM_PROCID"));
  EXPECT_THAT(refusal(without(kSlurm, "SLURM_JOB_NODELIST")), HasSubstr("SLURM_JOB_NODELIST is not set"));
}

TEST(Launch, RefusesValuesThatAreNoRank) {
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "8"}})), HasSubstr("RANK is `8`"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "-1"}})), HasSubstr("RANK is `-1`"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", "many"}})), HasSubstr("WORLD_SIZE is `many`"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_PORT", "70000"}})), HasSubstr("MASTER_PORT is `70000`"));
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_NTASKS", ""}})), HasSubstr("SLURM_NTASKS is ``"));
}

TEST(Launch, RefusesALoopbackHeadForSeveralNodes) {
  for (const char* address : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_ADDR", address}})),
                HasSubstr(std::string("MASTER_ADDR is ") + address));
    EXPECT_THAT(refusal(with(kSlurm, {{"MASTER_ADDR", address}})), HasSubstr("several nodes"));
  }
  // All of one node may meet on the loopback interface.
  EXPECT_EQ(
      read(with(kTorchrun, {{"MASTER_ADDR", "127.0.0.1"}, {"LOCAL_WORLD_SIZE", "8"}, {"LOCAL_RANK", "5"}}))
          .world_size,
      8);
}

TEST(Launch, RefusesLaunchersThatContradictEachOther) {
  Variables both = kSlurm;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(read(both).rank, 5);
  EXPECT_THAT(refusal(with(both, {{"RANK", "4"}})), HasSubstr("process 4 of 8"));
  EXPECT_THAT(refusal(with(both, {{"SLURM_NTASKS", "16"}})), HasSubstr("say 5 of 16"));
}

TEST(Launch, AcceptsTorchrunAgentsUnderSrunOnlyIfTheyKnowEachOther) {
  Variables both = kTorchrun;
  both.merge(Variables{{"SLURM_PROCID", "1"},
                       {"SLURM_NTASKS", "2"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "2"},
                       {"TORCHELASTIC_RUN_ID", "none"},
                       {"GROUP_WORLD_SIZE", "2"}});
  EXPECT_EQ(read(both).world_size, 8);
  EXPECT_THAT(refusal(with(both, {{"GROUP_WORLD_SIZE", "1"}})), HasSubstr("would train apart"));
}

// What `#SBATCH --ntasks=8` leaves in the environment of the script and of all that it starts.
const Variables kBatchScript = {{"SLURM_PROCID", "0"},
                                {"SLURM_NTASKS", "8"},
                                {"SLURM_LOCALID", "0"},
                                {"SLURM_JOB_NODELIST", "gpu07"},
                                {"SLURM_TASKS_PER_NODE", "8"}};

TEST(Launch, GoesByTorchrunInABatchScriptThatAskedForTasks) {
  const Variables child = with(with(kBatchScript, kTorchrun), {{"TORCHELASTIC_RUN_ID", "none"},
                                                               {"GROUP_WORLD_SIZE", "1"},
                                                               {"LOCAL_WORLD_SIZE", "8"},
                                                               {"LOCAL_RANK", "5"}});
  EXPECT_EQ(read(child).launcher, Launcher::kTorchrun);
  EXPECT_EQ(read(child).rank, 5);
  EXPECT_EQ(read(child).local_world_size, 8);
  // The same variables set by hand, and with what an interactive step left behind.
  EXPECT_EQ(read(with(kBatchScript, kTorchrun)).rank, 5);
  EXPECT_EQ(read(with(child, {{"SLURM_STEP_NUM_TASKS", "1"}})).rank, 5);
}

TEST(Launch, GoesByTorchrunsVariablesWhereEachTaskStartsSeveralProcesses) {
  const Variables child = with(
      kTorchrun,
      {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(read(child).rank, 5);
  EXPECT_EQ(read(child).world_size, 8);
}

TEST(Launch, RefusesABatchScriptWithTasksThatForgotSrun) {
  EXPECT_THAT(refusal(kBatchScript), HasSubstr("srun did not start this process"));
  EXPECT_THAT(refusal(kBatchScript), HasSubstr("`srun smoe-train CONFIG`"));
  EXPECT_THAT(refusal(with(kBatchScript, {{"SLURM_STEP_NUM_TASKS", "1"}})),
              HasSubstr("SLURM_STEP_NUM_TASKS is 1"));
  EXPECT_EQ(read(with(kBatchScript, {{"SLURM_STEP_NUM_TASKS", "8"}})).world_size, 8);
}

TEST(NodeList, ExpandsRangesListsAndLeadingZeros) {
  EXPECT_THAT(expand_node_list("one"), ElementsAre("one"));
  EXPECT_THAT(expand_node_list("gpu[01-03,7],head"), ElementsAre("gpu01", "gpu02", "gpu03", "gpu7", "head"));
  EXPECT_THAT(expand_node_list("r[1-2]n[08-09].site"),
              ElementsAre("r1n08.site", "r1n09.site", "r2n08.site", "r2n09.site"));
}

TEST(NodeList, RefusesWhatIsNone) {
  for (const char* list : {"", "gpu[1-", "gpu[a-b]", "gpu[3-1]", "a,,b", "gpu1]"}) {
    EXPECT_THROW(expand_node_list(list), ConfigError) << list;
  }
}

}  // namespace
}  // namespace smoe
