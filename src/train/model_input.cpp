#include "smoe/train/model_input.h"

#include "smoe/routing/host_to_device.h"

namespace smoe {
namespace {

at::Tensor narrow_if_defined(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return tensor.defined() ? tensor.narrow(0, begin, count) : tensor;
}

}  // namespace

Batch slice_rows(const Batch& batch, int64_t begin, int64_t count) {
  Batch rows;
  rows.tokens_BT = batch.tokens_BT.narrow(0, begin, count);
  rows.targets_BT = batch.targets_BT.narrow(0, begin, count);
  rows.loss_mask_BT = batch.loss_mask_BT.narrow(0, begin, count);
  rows.documents_BT = narrow_if_defined(batch.documents_BT, begin, count);
  rows.positions_BT = narrow_if_defined(batch.positions_BT, begin, count);
  if (!batch.sources.empty()) {
    rows.sources.assign(batch.sources.begin() + begin, batch.sources.begin() + begin + count);
  }
  if (!batch.chats.empty()) {
    rows.chats.assign(batch.chats.begin() + begin, batch.chats.begin() + begin + count);
  }
  return rows;
}

SegmentMap make_segments(const Batch& batch, int64_t segment_length, SelectorPosition position) {
  return batch_segments(batch, segment_length, position);
}

ModelInput make_model_input(const Batch& batch, int64_t segment_length, std::vector<int64_t> budget_of_row,
                            at::Device device, SelectorPosition position) {
  ModelInput input;
  input.tokens_BT = copy_to_device(batch.tokens_BT, device);
  if (batch.positions_BT.defined()) input.positions_BT = copy_to_device(batch.positions_BT, device);
  if (batch.documents_BT.defined()) {
    // A mask would grow with the square of the length.
    input.document_lengths = document_lengths(batch.documents_BT);
  }
  input.segments = make_segments(batch, segment_length, position);
  input.budget_of_row = std::move(budget_of_row);
  return input;
}

}  // namespace smoe
