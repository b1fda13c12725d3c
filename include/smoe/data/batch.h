// What the data side hands to training: rows of tokens with everything that travels with them.
//
// Shape legend: B rows, T tokens.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "smoe/routing/chat_segments.h"

namespace smoe {

// Row b, position t predicts targets[b, t] from tokens[b, 0..t]. The mask travels with the tokens: a
// target counts if and only if loss_mask is true there, never by its value.
struct Batch {
  at::Tensor tokens_BT;          // int64
  at::Tensor targets_BT;         // int64
  at::Tensor loss_mask_BT;       // bool
  at::Tensor documents_BT;       // int64, equal numbers within one document, kPaddingDocument after the
                                 // last one; undefined: rows are one stream
  at::Tensor positions_BT;       // int64, restart in each document; undefined: 0..T-1
  std::vector<int64_t> sources;  // [B] index of the mixture source of each row
  std::vector<ChatRow> chats;    // [B] the dialogues of each row; empty: rows of text, not of dialogues

  int64_t num_rows() const { return tokens_BT.size(0); }
  int64_t num_tokens() const { return tokens_BT.size(1); }
  // Number of true entries of the mask.
  int64_t num_targets() const { return loss_mask_BT.sum().item<int64_t>(); }
};

// The routing segments of a batch for segments of `segment_length` tokens: by turns where it holds dialogues,
// else runs from the start of each document, else runs from the start of each row.
SegmentMap batch_segments(const Batch& batch, int64_t segment_length,
                          SelectorPosition position = SelectorPosition::kFirst);

}  // namespace smoe
