#include "smoe/train/model_input.h"

#include "smoe/model/layers.h"

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

SegmentMap make_segments(const Batch& batch, int64_t segment_length) {
  return batch_segments(batch, segment_length);
}

ModelInput make_model_input(const Batch& batch, int64_t segment_length, std::vector<int64_t> budget_of_row,
                            at::Device device) {
  ModelInput input;
  input.tokens_BT = batch.tokens_BT.to(device);
  if (batch.positions_BT.defined()) input.positions_BT = batch.positions_BT.to(device);
  if (batch.documents_BT.defined()) {
    input.attention_BTT = document_causal_mask(batch.documents_BT.to(device));
  }
  input.segments = make_segments(batch, segment_length);
  input.budget_of_row = std::move(budget_of_row);
  return input;
}

}  // namespace smoe
