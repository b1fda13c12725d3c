#include "smoe/train/join_job.h"

#include <ATen/Context.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "smoe/core/available_cores.h"
#include "smoe/core/error.h"
#include "smoe/core/log.h"
#include "smoe/core/tool.h"
#include "smoe/distributed/shard_groups.h"
#include "smoe/model/device.h"
#include "smoe/train/config_difference.h"

namespace smoe {
namespace {

constexpr const char* kConfigName = "the config";

// What differs between two values of a property.
std::string describe_difference(const std::string& name, const std::string& main, const std::string& other) {
  if (name != kConfigName) return fmt::format("{} there, {} on rank 0", other, main);
  return describe_differences(config_differences(main, other)) + " (first rank 0, then this rank)";
}

void silence_console() {
  for (const spdlog::sink_ptr& sink : spdlog::default_logger()->sinks()) {
    if (std::dynamic_pointer_cast<spdlog::sinks::stderr_color_sink_mt>(sink))
      sink->set_level(spdlog::level::err);
  }
}

}  // namespace

std::string device_of_process(const std::string& device, const LaunchInfo& launch) {
  if (!launch.is_distributed() || !device.starts_with("cuda")) return device;
  SMOE_CHECK(
      ConfigError, device == "cuda" || launch.local_world_size == 1,
      "device is {}, but {} processes run on this node and would share that GPU; set device to cuda: each "
      "process then takes the GPU of its local rank",
      device, launch.local_world_size);
  return device == "cuda" ? fmt::format("cuda:{}", launch.local_rank) : device;
}

int64_t threads_of_process(int64_t num_threads, const LaunchInfo& launch) {
  if (num_threads != 0 || !launch.is_distributed()) return num_threads;
  return std::max<int64_t>(static_cast<int64_t>(available_cores()) / launch.local_world_size, 1);
}

void check_same_everywhere(Communicator& all, const std::vector<SharedProperty>& properties) {
  if (all.world_size() == 1) return;
  nlohmann::json values = nlohmann::json::array();
  for (const SharedProperty& property : properties) values.push_back(property.value);
  const std::vector<std::string> texts = all.all_gather_strings(values.dump(), "identity of the run");
  const nlohmann::json main = nlohmann::json::parse(texts.front());
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    const nlohmann::json other = nlohmann::json::parse(texts[rank]);
    for (size_t i = 0; i < properties.size(); ++i) {
      const std::string ours = main.at(i), theirs = other.at(i);
      if (ours == theirs) continue;
      throw ConfigError(fmt::format("rank {}: {} is not that of rank 0: {}. {}", rank, properties[i].name,
                                    describe_difference(properties[i].name, ours, theirs),
                                    properties[i].remedy));
    }
  }
}

void check_job(const TrainConfig& config, const LaunchInfo& launch) {
  if (!launch.is_distributed()) return;
  SMOE_CHECK(
      ConfigError, config.batch_size >= launch.world_size,
      "batch_size is {}, fewer sequences than the {} processes of the job; every process needs at least one",
      config.batch_size, launch.world_size);
  shard_group_processes(config.distributed, launch.world_size);
  const std::string device = device_of_process(config.device, launch);
  check_backend(config.distributed.backend, device);
  if (device == "cpu" || !at::hasCUDA()) return;  // resolve_device() says what is missing
  const int64_t num_gpus = static_cast<int64_t>(at::getNumGPUs());
  SMOE_CHECK(ConfigError, launch.local_world_size <= num_gpus,
             "{} processes run on this node, which has {} GPUs, and each needs one: start {} a node "
             "(--nproc-per-node of torchrun, --ntasks-per-node of srun)",
             launch.local_world_size, num_gpus, num_gpus);
}

std::shared_ptr<Communicator> join_job(const TrainConfig& config) {
  const LaunchInfo launch = read_launch_info();
  if (!launch.is_distributed()) return Communicator::single();
  if (launch.rank != 0) silence_console();
  check_job(config, launch);
  const at::Device device = resolve_device(device_of_process(config.device, launch));
  std::shared_ptr<Communicator> all = Communicator::connect(launch, config.distributed, device);
  check_same_everywhere(*all, {{"the code version", version(), "Install the same build on every node."},
                               {kConfigName, dump_config(config),
                                "Start every process with the same file and the same --set."}});
  return all;
}

int run_as_member(Communicator& all, const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    all.report_failure(error.what());
    throw;
  }
}

}  // namespace smoe
