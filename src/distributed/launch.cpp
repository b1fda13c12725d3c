#include "smoe/distributed/launch.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr int64_t kFirstSlurmPort = 20000;
constexpr int64_t kNumSlurmPorts = 10000;
constexpr int64_t kLargestPort = 65535;

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

class Variables {
 public:
  explicit Variables(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  bool has(const std::string& name) const { return lookup_(name).has_value(); }
  std::string text(const std::string& name) const { return lookup_(name).value_or(""); }

  int64_t number(const std::string& name, int64_t lowest, int64_t highest) const {
    const std::string value = text(name);
    int64_t result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    SMOE_CHECK(
        ConfigError,
        error == std::errc() && end == value.data() + value.size() && result >= lowest && result <= highest,
        "the environment variable {} is `{}`; a launcher sets it to a number from {} to {}. Unset it to "
        "train in a single process.",
        name, value, lowest, highest);
    return result;
  }
  int64_t number_or(const std::string& name, int64_t lowest, int64_t highest, int64_t fallback) const {
    return has(name) ? number(name, lowest, highest) : fallback;
  }

  // True if all of `names` are set, false if none is. Throws if some are.
  bool all_or_none(const std::vector<std::string>& names, const char* launcher, const char* remedy) const {
    std::vector<std::string> set, unset;
    for (const std::string& name : names) (has(name) ? set : unset).push_back(name);
    SMOE_CHECK(ConfigError, set.empty() || unset.empty(),
               "the environment has {} but not {}: {} sets all of them. {}, or unset {} to train in a single "
               "process.",
               fmt::join(set, ", "), fmt::join(unset, ", "), launcher, remedy, fmt::join(set, ", "));
    return unset.empty();
  }

 private:
  const EnvironmentLookup& lookup_;
};

constexpr int64_t kMostRanks = int64_t{1} << 30;

void check_head(const LaunchInfo& info, bool has_several_nodes, const char* source) {
  SMOE_CHECK(
      ConfigError, !has_several_nodes || !is_loopback(info.main_address),
      "{} is {}, which every node takes for itself, but the job of {} processes runs on several nodes. "
      "Set it to the name or address by which the other nodes reach the first one.",
      source, info.main_address, info.world_size);
}

LaunchInfo from_torchrun(const Variables& variables) {
  LaunchInfo info;
  info.launcher = Launcher::kTorchrun;
  info.world_size = variables.number("WORLD_SIZE", 1, kMostRanks);
  info.rank = variables.number("RANK", 0, info.world_size - 1);
  info.local_rank = variables.number("LOCAL_RANK", 0, info.rank);
  info.main_address = variables.text("MASTER_ADDR");
  SMOE_CHECK(ConfigError, !info.main_address.empty(),
             "the environment variable MASTER_ADDR is empty; set it to the address of the first node");
  info.main_port = variables.number("MASTER_PORT", 1, kLargestPort);
  // Whoever sets the variables by hand often leaves this one out; processes whose two ranks agree are on the
  // first node.
  const int64_t known_local = info.rank == info.local_rank ? info.world_size : info.local_rank + 1;
  info.local_world_size = variables.number_or("LOCAL_WORLD_SIZE", 1, info.world_size, known_local);
  info.launcher_holds_store = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  check_head(info, info.local_world_size < info.world_size, "MASTER_ADDR");
  return info;
}

// "4(x2),3": 4, 4, 3.
int64_t tasks_of_node(const std::string& list, int64_t node) {
  size_t at = 0;
  while (at < list.size()) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, end - at);
    const size_t times = item.find("(x");
    const int64_t repeats = times == std::string::npos ? 1 : std::atoll(item.c_str() + times + 2);
    if (node < repeats) return std::max<int64_t>(std::atoll(item.c_str()), 1);
    node -= repeats;
    at = end + 1;
  }
  return 1;
}

LaunchInfo from_slurm(const Variables& variables) {
  LaunchInfo info;
  info.launcher = Launcher::kSlurm;
  info.world_size = variables.number("SLURM_NTASKS", 1, kMostRanks);
  info.rank = variables.number("SLURM_PROCID", 0, info.world_size - 1);
  info.local_rank = variables.number("SLURM_LOCALID", 0, info.rank);
  const char* list_name = variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  SMOE_CHECK(ConfigError, variables.has(list_name),
             "srun started {} tasks, but SLURM_JOB_NODELIST is not set, so that they cannot find each other. "
             "Set MASTER_ADDR and MASTER_PORT and the list, or start with torchrun.",
             info.world_size);
  const std::vector<std::string> nodes = expand_node_list(variables.text(list_name));
  const bool has_several_nodes = nodes.size() > 1;
  const char* tasks =
      variables.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  info.local_world_size =
      has_several_nodes
          ? tasks_of_node(variables.text(tasks), variables.number_or("SLURM_NODEID", 0, 1 << 20, 0))
          : info.world_size;
  info.main_address = variables.has("MASTER_ADDR") ? variables.text("MASTER_ADDR") : nodes.front();
  const int64_t job = variables.number_or("SLURM_JOB_ID", 0, int64_t{1} << 62, 0);
  info.main_port =
      variables.number_or("MASTER_PORT", 1, kLargestPort, kFirstSlurmPort + job % kNumSlurmPorts);
  check_head(info, has_several_nodes, variables.has("MASTER_ADDR") ? "MASTER_ADDR" : list_name);
  return info;
}

// True in a task of srun. In a batch script, SLURM_PROCID and SLURM_LOCALID are 0 and SLURM_NTASKS is what
// the job asked for, but no step runs; what an outer step left in the environment counts other tasks.
bool is_srun_task(const Variables& variables, int64_t tasks) {
  if (variables.has("SLURM_STEP_NUM_TASKS"))
    return variables.number("SLURM_STEP_NUM_TASKS", 1, kMostRanks) == tasks;
  return variables.has("SLURM_STEP_ID") || variables.has("SLURM_STEP_NODELIST") ||
         variables.has("SLURM_STEP_TASKS_PER_NODE");
}

LaunchInfo from_slurm_alone(const Variables& variables) {
  const int64_t tasks = variables.number("SLURM_NTASKS", 1, kMostRanks);
  if (tasks == 1) return {};
  SMOE_CHECK(
      ConfigError, is_srun_task(variables, tasks),
      "SLURM_NTASKS is {}, but srun did not start this process (SLURM_STEP_NUM_TASKS {}): it would "
      "wait for {} others that nobody starts. In a batch script write `srun smoe-train CONFIG`, or "
      "torchrun; to train in a single process, unset SLURM_NTASKS, SLURM_PROCID and SLURM_LOCALID. "
      "Where a container hides srun's variables, pass SLURM_STEP_NUM_TASKS on.",
      tasks,
      variables.has("SLURM_STEP_NUM_TASKS") ? "is " + variables.text("SLURM_STEP_NUM_TASKS") : "is not set",
      tasks - 1);
  return from_slurm(variables);
}

// torchrun's variables win where they are complete. Refused is only what cannot be meant: agents under srun
// that do not know each other, and ranks left over from another job.
void check_agreement(const Variables& variables, const LaunchInfo& torchrun) {
  const int64_t tasks = variables.number("SLURM_NTASKS", 1, kMostRanks);
  if (tasks == 1 || !is_srun_task(variables, tasks)) return;
  if (variables.has("TORCHELASTIC_RUN_ID")) {
    const int64_t agents = variables.number_or("GROUP_WORLD_SIZE", 1, kMostRanks, 1);
    SMOE_CHECK(
        ConfigError, agents == tasks,
        "srun started {} tasks, but torchrun (GROUP_WORLD_SIZE) knows of {}: the tasks would train apart. "
        "Pass --nnodes={} and a common --rdzv-endpoint to torchrun, or start smoe-train with srun alone.",
        tasks, agents, tasks);
    return;
  }
  const int64_t procid = variables.number("SLURM_PROCID", 0, kMostRanks);
  // A task may well start several processes.
  const bool are_parts = torchrun.world_size > tasks && torchrun.world_size % tasks == 0;
  SMOE_CHECK(
      ConfigError, are_parts || (torchrun.rank == procid && torchrun.world_size == tasks),
      "RANK and WORLD_SIZE say process {} of {}, SLURM_PROCID and SLURM_NTASKS say {} of {}. Unset RANK, "
      "WORLD_SIZE and LOCAL_RANK to go by SLURM, or the SLURM variables to go by torchrun's.",
      torchrun.rank, torchrun.world_size, procid, tasks);
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

LaunchInfo read_launch_info(const EnvironmentLookup& lookup) {
  const Variables variables(lookup);
  const bool is_slurm = variables.all_or_none({"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}, "srun",
                                              "Start with `srun smoe-train CONFIG`");
  // A head address alone may be exported for srun.
  const bool has_ranks = variables.has("RANK") || variables.has("WORLD_SIZE") || variables.has("LOCAL_RANK");
  if (is_slurm && !has_ranks) return from_slurm_alone(variables);
  if (!variables.all_or_none({"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}, "torchrun",
                             "Start with `torchrun --no-python ... smoe-train CONFIG`")) {
    return {};
  }
  const LaunchInfo info = from_torchrun(variables);
  if (is_slurm) check_agreement(variables, info);
  return info;
}

}  // namespace smoe
