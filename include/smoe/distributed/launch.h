// Which process of a job this one is, read from the variables of the launcher: torchrun (or anything that
// sets the same ones) or SLURM's srun. Not for talking to the others: communicator.h does that.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace smoe {

enum class Launcher {
  kNone,      // started alone: one process
  kTorchrun,  // RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
  kSlurm,     // SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_STEP_NUM_TASKS, SLURM_JOB_NODELIST
};

struct LaunchInfo {
  Launcher launcher = Launcher::kNone;
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;        // number within the node
  int64_t local_world_size = 1;  // processes on this node
  std::string main_address;      // of the node that holds the store
  int64_t main_port = 0;
  bool launcher_holds_store = false;  // torchrun runs the store's server; else rank 0 does

  bool is_distributed() const { return world_size > 1; }
};

// Value of an environment variable; none if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// The value in this process's environment.
std::optional<std::string> environment_variable(const std::string& name);

// Reads the launcher's variables. No variables: a single process. torchrun's, where they are complete, win
// over SLURM's, which are in the environment of whatever a batch script starts. Throws ConfigError, with the
// remedy, if only some of a launcher's variables are set, one is no number or out of range, torchrun and a
// step of srun contradict each other, a batch script with several tasks starts the process without srun, or
// the head address is a loopback one although the job has several nodes.
LaunchInfo read_launch_info(const EnvironmentLookup& lookup = environment_variable);

// The hosts of a SLURM node list: "gpu[01-03,7],head" is gpu01 gpu02 gpu03 gpu7 head. Throws ConfigError
// for a list it cannot read.
std::vector<std::string> expand_node_list(const std::string& list);

}  // namespace smoe
