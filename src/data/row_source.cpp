#include "smoe/data/row_source.h"

namespace smoe {

Batch make_batch(int64_t num_rows, int64_t num_tokens, SequenceKind sequences) {
  Batch batch;
  batch.tokens_BT = at::zeros({num_rows, num_tokens}, at::kLong);
  batch.targets_BT = at::zeros({num_rows, num_tokens}, at::kLong);
  batch.loss_mask_BT = at::zeros({num_rows, num_tokens}, at::kBool);
  if (sequences == SequenceKind::kPacked) {
    batch.documents_BT = at::zeros({num_rows, num_tokens}, at::kLong);
    batch.positions_BT = at::zeros({num_rows, num_tokens}, at::kLong);
  }
  batch.sources.assign(num_rows, 0);
  return batch;
}

}  // namespace smoe
