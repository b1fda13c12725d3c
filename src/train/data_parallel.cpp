#include "smoe/train/data_parallel.h"

#include "gradient_buckets.h"
#include "smoe/core/error.h"
#include "smoe/distributed/shard_groups.h"

namespace smoe {
namespace {

constexpr double kBytesPerMegabyte = 1024.0 * 1024.0;

std::vector<int64_t> every_nth(int64_t first, int64_t step, int64_t count) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

ParameterSlice whole_slice(const NamedParameter& parameter) {
  const at::Tensor values = parameter.tensor.detach();
  return {parameter.name, parameter.kind, values.sizes().vec(), 0,
          values.numel(), values,         parameter.tensor,     {}};
}

}  // namespace

DataParallel::DataParallel(const std::vector<NamedParameter>& parameters, std::shared_ptr<Communicator> all,
                           const DistributedConfig& config)
    : all_(std::move(all)), zero_stage_(config.zero_stage), parameters_(parameters) {
  SMOE_ASSERT(!parameters_.empty());
  form_groups(config);
  if (is_distributed()) {
    // Gradients are summed in float32.
    hold_shards(static_cast<int64_t>(config.bucket_mb * kBytesPerMegabyte / sizeof(float)));
  } else {
    hold_whole_parameters();
  }
}

DataParallel::~DataParallel() = default;

void DataParallel::form_groups(const DistributedConfig& config) {
  const int64_t world = world_size();
  const int64_t size = shard_group_processes(config, world);
  if (world == 1 || zero_stage_ == 0) {
    shard_ = Communicator::single();
    replicas_ = all_;
    return;
  }
  if (size == world) {
    shard_ = all_;
    replicas_ = Communicator::single();
    return;
  }
  // Neighbouring ranks share a node, and shards move more data than copies of them.
  shard_ = all_->subgroup(every_nth(rank() / size * size, 1, size), "shard group");
  replicas_ = all_->subgroup(every_nth(rank() % size, size, world / size), "copies of a shard");
}

void DataParallel::hold_whole_parameters() {
  for (const NamedParameter& parameter : parameters_) {
    if (parameter.kind == ParameterKind::kBuffer) continue;
    at::Tensor tensor = parameter.tensor;
    const at::ScalarType type = at::promote_types(tensor.scalar_type(), at::kFloat);
    if (type != tensor.scalar_type()) tensor.set_grad_dtype(type);
    tensor.mutable_grad() =
        at::zeros_like(tensor.detach(), tensor.options().dtype(type).requires_grad(false));
    slices_.push_back(whole_slice(parameter));
  }
}

void DataParallel::hold_shards(int64_t bucket_elements) {
  std::vector<const NamedParameter*> trained;
  std::vector<at::Tensor> tensors;
  std::vector<ShardItem> items;
  for (const NamedParameter& parameter : parameters_) {
    if (parameter.kind == ParameterKind::kBuffer) continue;
    trained.push_back(&parameter);
    tensors.push_back(parameter.tensor);
    items.push_back({parameter.tensor.numel(), static_cast<int>(parameter.tensor.scalar_type())});
  }
  const ShardLayout layout(items, std::max<int64_t>(bucket_elements, 1), shard_->world_size());
  buckets_ = std::make_unique<GradientBuckets>(layout, tensors, zero_stage_, shard_, replicas_);
  if (zero_stage_ == 0) {
    for (const NamedParameter* parameter : trained) slices_.push_back(whole_slice(*parameter));
    return;
  }
  for (size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
    const ShardBucket& place = layout.buckets()[bucket];
    const at::Tensor& first = tensors[place.pieces.front().item];
    const at::Tensor flat = at::zeros({place.num_elements}, first.options().requires_grad(false));
    for (const ShardPiece& piece : place.pieces) {
      at::Tensor& parameter = tensors[piece.item];
      const at::Tensor view = flat.narrow(0, piece.offset, piece.end - piece.begin).view(parameter.sizes());
      view.copy_(parameter.detach());
      parameter.set_data(view);
    }
    flat_values_.push_back(flat);
    const int64_t shard_size = layout.shard_elements(bucket);
    const at::Tensor own = flat.narrow(0, shard_->rank() * shard_size, shard_size);
    for (const ShardPiece& piece : layout.shard_pieces(bucket, shard_->rank())) {
      const NamedParameter& parameter = *trained[piece.item];
      const int64_t size = piece.end - piece.begin;
      slices_.push_back({parameter.name, parameter.kind, parameter.tensor.sizes().vec(), piece.begin,
                         piece.end, own.narrow(0, piece.offset, size), parameter.tensor,
                         buckets_->shard_gradient(bucket).narrow(0, piece.offset, size)});
    }
  }
}

bool DataParallel::owns_slices() const {
  // Stage 0: every process holds everything, and rank 0 saves it.
  return replicas_->rank() == 0;
}

void DataParallel::zero_gradients() {
  if (buckets_) {
    buckets_->zero();
    return;
  }
  // In place: a parameter that no token reached keeps a gradient of zeros, so it still decays.
  for (const ParameterSlice& slice : slices_) slice.gradient().zero_();
}

void DataParallel::begin_backward(bool is_last) {
  if (buckets_) buckets_->begin_backward(is_last);
}

void DataParallel::end_backward() {
  if (buckets_) buckets_->end_backward();
}

bool DataParallel::own_gradients_are_finite() const { return !buckets_ || buckets_->own_is_finite(); }

bool DataParallel::is_sending() const { return buckets_ && buckets_->is_active(); }

void DataParallel::finish_gradients() {
  if (buckets_) buckets_->finish();
}

void DataParallel::sum_over_shards(const at::Tensor& value, const std::string& name) const {
  shard_->all_reduce_sum(value, name);
}

void DataParallel::gather_parameters() {
  std::vector<PendingOperation> operations;
  for (size_t bucket = 0; bucket < flat_values_.size(); ++bucket) {
    const at::Tensor& flat = flat_values_[bucket];
    const int64_t shard_size = flat.numel() / shard_->world_size();
    if (shard_->world_size() == 1) continue;
    operations.push_back(shard_->start_all_gather(
        flat, flat.narrow(0, shard_->rank() * shard_size, shard_size), "parameters"));
  }
  for (PendingOperation& operation : operations) operation.wait();
}

void DataParallel::broadcast_parameters() {
  if (!is_distributed()) return;
  for (const NamedParameter& parameter : parameters_)
    all_->broadcast(parameter.tensor.detach(), 0, "initial parameters");
}

}  // namespace smoe
