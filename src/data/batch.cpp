#include "smoe/data/batch.h"

#include "smoe/core/error.h"

namespace smoe {

SegmentMap batch_segments(const Batch& batch, int64_t segment_length, SelectorPosition position) {
  if (!batch.chats.empty()) {
    SMOE_ASSERT(static_cast<int64_t>(batch.chats.size()) == batch.num_rows());
    return chat_segments(batch.chats, batch.num_tokens(), segment_length, position);
  }
  if (batch.documents_BT.defined()) return fixed_segments(batch.documents_BT, segment_length, position);
  return fixed_segments(batch.num_rows(), batch.num_tokens(), segment_length, position);
}

}  // namespace smoe
