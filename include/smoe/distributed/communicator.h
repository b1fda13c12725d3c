// Collective operations between the processes of a job, on c10d: Gloo for tensors on the CPU, NCCL for those
// on CUDA devices.
//
// All processes must call the same operations in the same order. Every operation has a name, which errors and
// logs repeat. If a process dies, hangs or fails, the operation throws smoe::Error on the others, or ends
// them with the same message, within timeout_seconds; it names the rank as far as it can be found out, the
// operation and the step.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smoe/distributed/distributed_config.h"
#include "smoe/distributed/launch.h"
#include "smoe/distributed/message_board.h"

namespace smoe {

// Throws ConfigError if `backend` does not move tensors of `device` (cpu, cuda or cuda:N), or if this build
// has no library that does.
void check_backend(CommunicationBackend backend, const std::string& device);

// An operation that runs while the caller goes on. The tensors it was given must not be touched before
// wait().
class PendingOperation {
 public:
  PendingOperation() = default;  // one that is over
  // Returns when the result is there (for CUDA: when later work on the current stream may use it). Throws
  // like the operation. A second call does nothing.
  void wait();

  struct State;
  explicit PendingOperation(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  // Of a process on its own: every operation is a plain copy or nothing.
  static std::shared_ptr<Communicator> single();
  // Meets the other processes of the job; `device` is that of the tensors to come. A launch of one process
  // gives single(). Throws Error if they do not all arrive within the timeout, naming those that are missing.
  static std::shared_ptr<Communicator> connect(const LaunchInfo& launch, const DistributedConfig& config,
                                               at::Device device);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int64_t rank() const { return rank_; }
  int64_t world_size() const { return world_size_; }
  bool is_main() const { return rank_ == 0; }
  const LaunchInfo& launch() const;

  // The processes `ranks` (of this communicator, ascending, this one among them) on their own. Called by all
  // of them, with the same name. Ranks are then counted within the group.
  std::shared_ptr<Communicator> subgroup(const std::vector<int64_t>& ranks, const std::string& name);

  // In place, on contiguous tensors of the same shape and type everywhere.
  void all_reduce_sum(const at::Tensor& tensor, const std::string& name);
  void all_reduce_max(const at::Tensor& tensor, const std::string& name);
  void broadcast(const at::Tensor& tensor, int64_t root, const std::string& name);
  PendingOperation start_all_reduce_sum(const at::Tensor& tensor, const std::string& name);

  // `whole` is world_size() times as long as `part`, both flat; rank r's part is the r-th. The two must not
  // overlap, but all_gather may be given this rank's part of `whole` itself.
  void reduce_scatter_sum(const at::Tensor& part, const at::Tensor& whole, const std::string& name);
  void all_gather(const at::Tensor& whole, const at::Tensor& part, const std::string& name);
  PendingOperation start_reduce_scatter_sum(const at::Tensor& part, const at::Tensor& whole,
                                            const std::string& name);
  PendingOperation start_all_gather(const at::Tensor& whole, const at::Tensor& part, const std::string& name);

  void barrier(const std::string& name);
  // The texts of all ranks, in their order; any lengths.
  std::vector<std::string> all_gather_strings(const std::string& text, const std::string& name);

  // A board for messages beside the operations; for several processes only. `name` keeps boards apart.
  std::shared_ptr<MessageBoard> message_board(const std::string& name) const;

  // The optimizer step that errors name from now on.
  void set_step(int64_t step);
  // Tells the others why this process is about to end, so that they end with the same reason. Never throws.
  void report_failure(const std::string& message) noexcept;

  struct Impl;

 private:
  Communicator(std::shared_ptr<Impl> impl, int64_t rank, int64_t world_size);

  std::shared_ptr<Impl> impl_;  // null for a process on its own
  int64_t rank_ = 0;
  int64_t world_size_ = 1;
};

// The part of `total` things that falls to `rank` of `world_size`: contiguous, and sizes differ by one at
// most.
struct RankRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
inline RankRange rank_range(int64_t total, int64_t rank, int64_t world_size) {
  return {total * rank / world_size, total * (rank + 1) / world_size};
}

}  // namespace smoe
