#include "smoe/data/batch.h"

#include "smoe/core/error.h"

namespace smoe {

SegmentMap batch_segments(const Batch& batch, int64_t segment_length) {
  if (!batch.chats.empty()) {
    SMOE_ASSERT(static_cast<int64_t>(batch.chats.size()) == batch.num_rows());
    return chat_segments(batch.chats, batch.num_tokens(), segment_length);
  }
  if (batch.documents_BT.defined()) return fixed_segments(batch.documents_BT, segment_length);
  return fixed_segments(batch.num_rows(), batch.num_tokens(), segment_length);
}

}  // namespace smoe
