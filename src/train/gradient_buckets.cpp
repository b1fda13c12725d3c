#include "gradient_buckets.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// Stage 2 keeps whole gradients only of buckets under way; more would hide more of a slow network.
constexpr size_t kMostUnderWay = 3;

at::ScalarType gradient_type(at::ScalarType type) { return at::promote_types(type, at::kFloat); }

}  // namespace

// Called by autograd when a parameter's gradient of the pass is complete.
class GradientBuckets::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientBuckets& owner, size_t item) : owner_(owner), item_(item) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { owner_.on_gradient(item_); }

 private:
  GradientBuckets& owner_;
  size_t item_;
};

GradientBuckets::GradientBuckets(ShardLayout layout, std::vector<at::Tensor> parameters, int64_t stage,
                                 std::shared_ptr<Communicator> shard, std::shared_ptr<Communicator> replicas)
    : layout_(std::move(layout)),
      parameters_(std::move(parameters)),
      stage_(stage),
      shard_(std::move(shard)),
      replicas_(std::move(replicas)),
      buckets_(layout_.buckets().size()),
      places_(parameters_.size()) {
  make_buffers();
  add_hooks();
}

GradientBuckets::~GradientBuckets() {
  for (at::Tensor& parameter : parameters_) torch::autograd::impl::post_acc_grad_hooks(parameter).reset();
}

at::Tensor GradientBuckets::view(size_t bucket, const ShardPiece& piece) const {
  return buckets_[bucket]
      .whole.narrow(0, piece.offset, piece.end - piece.begin)
      .view(parameters_[piece.item].sizes());
}

void GradientBuckets::make_buffers() {
  own_sum_ = at::zeros({}, at::TensorOptions(parameters_.front().device()).dtype(at::kDouble));
  for (size_t index = 0; index < buckets_.size(); ++index) {
    const ShardBucket& place = layout_.buckets()[index];
    Bucket& bucket = buckets_[index];
    const at::Tensor& first = parameters_[place.pieces.front().item];
    const at::TensorOptions options =
        at::TensorOptions(first.device()).dtype(gradient_type(first.scalar_type()));
    if (stage_ < 2) bucket.whole = at::zeros({place.num_elements}, options);
    bucket.shard = stage_ == 0 ? bucket.whole : at::zeros({layout_.shard_elements(index)}, options);
    for (size_t i = 0; i < place.pieces.size(); ++i) {
      const ShardPiece& piece = place.pieces[i];
      places_[piece.item] = {index, i};
      at::Tensor& parameter = parameters_[piece.item];
      // Or autograd would round what it hands to stage 2.
      if (parameter.scalar_type() != bucket.shard.scalar_type())
        parameter.set_grad_dtype(bucket.shard.scalar_type());
      if (stage_ == 2) continue;
      // Autograd adds into these views, so that nothing has to be copied into a bucket.
      parameter.mutable_grad() = view(index, piece);
    }
  }
}

void GradientBuckets::add_hooks() {
  for (size_t item = 0; item < parameters_.size(); ++item) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[item], std::make_unique<Hook>(*this, item));
  }
}

void GradientBuckets::zero() {
  own_sum_.zero_();
  for (Bucket& bucket : buckets_) {
    if (bucket.whole.defined()) bucket.whole.zero_();
    bucket.shard.zero_();
  }
  if (stage_ < 2) return;
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

void GradientBuckets::begin_backward(bool is_last) {
  is_active_ = is_last || stage_ == 2;
  num_started_ = 0;
  num_completed_ = 0;
  for (size_t index = 0; index < buckets_.size(); ++index)
    buckets_[index].num_missing = layout_.buckets()[index].pieces.size();
}

void GradientBuckets::on_gradient(size_t item) {
  if (!is_active_) return;
  const Place& place = places_[item];
  Bucket& bucket = buckets_[place.bucket];
  SMOE_ASSERT(bucket.num_missing > 0);
  if (stage_ == 2) {
    const ShardBucket& shape = layout_.buckets()[place.bucket];
    if (!bucket.whole.defined()) bucket.whole = at::zeros({shape.num_elements}, bucket.shard.options());
    at::Tensor& gradient = parameters_[item].mutable_grad();
    view(place.bucket, shape.pieces[place.piece]).copy_(gradient);
    gradient = at::Tensor();
  }
  --bucket.num_missing;
  start_ready();
}

void GradientBuckets::start_ready() {
  while (num_started_ < buckets_.size() && buckets_[num_started_].num_missing == 0) start(num_started_++);
}

void GradientBuckets::start(size_t index) {
  Bucket& bucket = buckets_[index];
  const std::string name = fmt::format("gradient bucket {} of {}", index + 1, buckets_.size());
  if (bucket.whole.defined()) own_sum_.add_(bucket.whole.sum());  // before other processes' are added to it
  if (stage_ == 0) {
    bucket.operation = replicas_->start_all_reduce_sum(bucket.whole, name);
  } else if (stage_ == 1) {
    bucket.operation = shard_->start_reduce_scatter_sum(bucket.shard, bucket.whole, name);
  } else {
    // No token may have reached any of its parameters.
    const int64_t size = layout_.buckets()[index].num_elements;
    if (!bucket.whole.defined()) bucket.whole = at::zeros({size}, bucket.shard.options());
    bucket.received = at::empty_like(bucket.shard);
    bucket.operation = shard_->start_reduce_scatter_sum(bucket.received, bucket.whole, name);
    if (index + 1 >= num_completed_ + kMostUnderWay) complete(num_completed_);
  }
}

void GradientBuckets::complete(size_t index) {
  Bucket& bucket = buckets_[index];
  bucket.operation.wait();
  bucket.shard.add_(bucket.received);
  bucket.received = at::Tensor();
  bucket.whole = at::Tensor();
  num_completed_ = index + 1;
}

void GradientBuckets::end_backward() {
  if (!is_active_) return;
  // Parameters that the pass did not reach have no gradient to wait for.
  while (num_started_ < buckets_.size()) start(num_started_++);
  if (stage_ == 2) {
    while (num_completed_ < buckets_.size()) complete(num_completed_);
  }
  is_active_ = false;
}

bool GradientBuckets::own_is_finite() const { return std::isfinite(own_sum_.item<double>()); }

void GradientBuckets::finish() {
  for (Bucket& bucket : buckets_) bucket.operation.wait();
  if (stage_ == 0 || replicas_->world_size() == 1) return;
  for (size_t index = 0; index < buckets_.size(); ++index) {
    buckets_[index].operation = replicas_->start_all_reduce_sum(
        buckets_[index].shard, fmt::format("gradient shard {} of {}", index + 1, buckets_.size()));
  }
  for (Bucket& bucket : buckets_) bucket.operation.wait();
}

}  // namespace smoe
