// Gradients in flat buckets that are summed over processes while the backward pass goes on.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "smoe/distributed/communicator.h"
#include "smoe/train/shard_layout.h"

namespace smoe {

class GradientBuckets {
 public:
  // `parameters`: in the order of the layout's items. `shard` sums and shares out, `replicas` sums the
  // shards. Stage 0: `shard` is one process, and `replicas` all.
  GradientBuckets(ShardLayout layout, std::vector<at::Tensor> parameters, int64_t stage,
                  std::shared_ptr<Communicator> shard, std::shared_ptr<Communicator> replicas);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  const ShardLayout& layout() const { return layout_; }
  // The gradient of this process's shard of a bucket; flat.
  const at::Tensor& shard_gradient(size_t bucket) const { return buckets_[bucket].shard; }

  void zero();
  void begin_backward(bool is_last);
  void end_backward();
  bool is_active() const { return is_active_; }
  void finish();
  // Of what this process has sent since zero().
  bool own_is_finite() const;

 private:
  struct Bucket {
    at::Tensor whole;        // stage 2: only while it fills and travels
    at::Tensor shard;        // stage 0: the whole
    at::Tensor received;     // stage 2: what the pass added, until it is added to `shard`
    size_t num_missing = 0;  // gradients that the pass has not given yet
    PendingOperation operation;
  };
  class Hook;

  void make_buffers();
  void add_hooks();
  void on_gradient(size_t item);
  void start_ready();
  void start(size_t index);
  void complete(size_t index);
  at::Tensor view(size_t bucket, const ShardPiece& piece) const;

  ShardLayout layout_;
  std::vector<at::Tensor> parameters_;
  int64_t stage_;
  std::shared_ptr<Communicator> shard_, replicas_;
  std::vector<Bucket> buckets_;
  at::Tensor own_sum_;  // of all gradients sent: a NaN or an infinity stays in it
  struct Place {
    size_t bucket = 0;
    size_t piece = 0;
  };
  std::vector<Place> places_;  // of each item
  bool is_active_ = false;     // the pass sends its gradients
  size_t num_started_ = 0;     // buckets start in their order, so that all processes use the same
  size_t num_completed_ = 0;
};

}  // namespace smoe
