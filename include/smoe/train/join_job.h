// Meets the other processes of a job before anything is opened, and refuses jobs whose processes differ.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "smoe/distributed/communicator.h"
#include "smoe/train/train_config.h"

namespace smoe {

// The device of a process: `cuda` means the GPU of its number within the node. Throws ConfigError for cuda:N
// with several processes on a node, which would all take the same one.
std::string device_of_process(const std::string& device, const LaunchInfo& launch);

// CPU threads of a process: `num_threads`, or for 0 its share of the cores it may use.
int64_t threads_of_process(int64_t num_threads, const LaunchInfo& launch);

// What a job of several processes refuses, as far as config and launcher tell before it has met: a batch
// smaller than the job, shard groups that do not divide it, a backend that does not fit the device, processes
// that would share a GPU. Throws ConfigError, the same on all processes of a node. Nothing is refused of a
// process on its own.
void check_job(const TrainConfig& config, const LaunchInfo& launch);

// Meets the other processes that the launcher started and sets up logging: only rank 0 writes to the console,
// but for errors. Throws ConfigError naming rank and key if a process has another config or code version than
// rank 0. A process on its own gets Communicator::single().
std::shared_ptr<Communicator> join_job(const TrainConfig& config);

// One property that must be the same in all processes.
struct SharedProperty {
  std::string name;  // as errors call it
  std::string value;
  std::string remedy;
};
// Throws ConfigError on every rank, naming the first rank that differs from rank 0 and what differs.
void check_same_everywhere(Communicator& all, const std::vector<SharedProperty>& properties);

// Runs `body`. If it throws, the other processes are told why before the exception goes on.
int run_as_member(Communicator& all, const std::function<int()>& body);

}  // namespace smoe
