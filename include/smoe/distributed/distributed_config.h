// Config of training with several processes.
#pragma once

#include <array>
#include <cstdint>

#include "smoe/core/config.h"

namespace smoe {

enum class CommunicationBackend {
  kAuto,  // nccl for CUDA devices, gloo for the CPU
  kGloo,
  kNccl,
};
template <>
struct EnumNames<CommunicationBackend> {
  static constexpr std::array values = {enum_name(CommunicationBackend::kAuto, "auto"),
                                        enum_name(CommunicationBackend::kGloo, "gloo"),
                                        enum_name(CommunicationBackend::kNccl, "nccl")};
};

struct DistributedConfig {
  int64_t zero_stage = 1;
  int64_t shard_group_size = 0;
  double bucket_mb = 64.0;
  double timeout_seconds = 600.0;
  CommunicationBackend backend = CommunicationBackend::kAuto;
};
template <class Visitor>
void visit_fields(Visitor& visitor, DistributedConfig& config) {
  visitor.field(
      "zero_stage", config.zero_stage,
      "what the processes share out: 0 nothing (plain data parallel), 1 optimizer states (ZeRO-1), 2 "
      "optimizer states and gradients (ZeRO-2)",
      between(0, 2));
  visitor.field("shard_group_size", config.shard_group_size,
                "processes that share one set of states (hybrid sharding: groups hold copies of each other), "
                "say those of a node; 0: all",
                at_least(0));
  visitor.field("bucket_mb", config.bucket_mb,
                "megabytes of gradients that are sent together while the backward goes on", positive());
  visitor.field("timeout_seconds", config.timeout_seconds,
                "a process that does not answer for this long ends the whole job", at_least(5.0));
  visitor.field("backend", config.backend, "library that moves the data");
}

}  // namespace smoe
