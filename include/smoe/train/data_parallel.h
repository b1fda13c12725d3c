// How the processes of a job share the work on one set of parameters: whose gradients are summed where, and
// which part of parameters and optimizer states each process updates.
//
//   zero_stage 0   every process sums all gradients and updates all parameters
//   zero_stage 1   gradients are reduce-scattered in buckets while the last backward pass of a step runs;
//   each
//                  process updates its shard of every bucket, and the parameters are all-gathered
//   zero_stage 2   as 1, but after every backward pass, and whole gradients exist only bucket by bucket
//
// A process on its own holds everything, and nothing is copied.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smoe/distributed/communicator.h"
#include "smoe/model/parameters.h"

namespace smoe {

class GradientBuckets;

// The part of one trained parameter that this process updates.
struct ParameterSlice {
  std::string name;
  ParameterKind kind = ParameterKind::kMatrix;
  std::vector<int64_t> shape;  // of the whole parameter
  int64_t begin = 0;           // of its flattened elements
  int64_t end = 0;
  at::Tensor values;  // the elements themselves: of the whole shape, or flat if it is a part; detached

  // Their gradient, of the same shape; its type is float32 where the parameter's is a half type.
  at::Tensor gradient() const { return shard_gradient.defined() ? shard_gradient : parameter.grad(); }

  at::Tensor parameter;       // whole
  at::Tensor shard_gradient;  // undefined where the gradient is that of the whole parameter
};

class DataParallel {
 public:
  // Gives every trained parameter a gradient of zeros (zero_stage 2: none). With several processes the
  // parameters move into flat buffers; handles to them stay valid, detached copies of handles do not. Throws
  // ConfigError if the shard groups do not divide the job.
  DataParallel(const std::vector<NamedParameter>& parameters, std::shared_ptr<Communicator> all,
               const DistributedConfig& config);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  Communicator& all() const { return *all_; }
  int64_t rank() const { return all_->rank(); }
  int64_t world_size() const { return all_->world_size(); }
  bool is_distributed() const { return all_->world_size() > 1; }
  // True if every backward pass, not only the last one, must be made by all processes together.
  bool every_pass_counts() const { return is_distributed() && zero_stage_ == 2; }

  const std::vector<ParameterSlice>& slices() const { return slices_; }
  // False if the slices are parts of what a shard group holds together.
  bool holds_whole_parameters() const { return shard_->world_size() == 1; }
  // True in the one shard group that saves the states (the others hold copies).
  bool owns_slices() const;

  // Device of the parameters.
  at::TensorOptions options() const { return at::TensorOptions(parameters_.front().tensor.device()); }

  void zero_gradients();
  // Before and after each backward pass of a step. Sums over processes begin while the last one (zero_stage
  // 2: each one) runs.
  void begin_backward(bool is_last);
  void end_backward();
  // Between the two: the gradients of this pass are sent while it runs, so autograd must see each of them.
  bool is_sending() const;
  // After the last one: waits until the gradients of this process's slices are sums over all processes.
  void finish_gradients();

  // Whether the gradients that this process has sent since zero_gradients() had numbers only, as far as their
  // sum tells: after the sum over processes nobody can say where a NaN came from. On its own: always true.
  bool own_gradients_are_finite() const;

  // Sum over the processes that hold the other parts of the parameters.
  void sum_over_shards(const at::Tensor& value, const std::string& name) const;
  // Makes the updated slices of all processes known to all.
  void gather_parameters();
  // Makes parameters and buffers those of rank 0 (after they were initialised or loaded).
  void broadcast_parameters();

 private:
  void form_groups(const DistributedConfig& config);
  void hold_whole_parameters();
  void hold_shards(int64_t bucket_elements);

  std::shared_ptr<Communicator> all_;
  std::shared_ptr<Communicator> shard_;     // shares one set of states; one process if nothing is shared out
  std::shared_ptr<Communicator> replicas_;  // those that hold the same shard
  int64_t zero_stage_ = 0;
  std::vector<NamedParameter> parameters_;  // buffers too
  std::vector<ParameterSlice> slices_;
  std::vector<at::Tensor> flat_values_;  // a bucket; empty without shards
  std::unique_ptr<GradientBuckets> buckets_;
};

}  // namespace smoe
