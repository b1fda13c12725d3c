// Rows of dialogues for people: which tokens are trained, which share their experts, and which token chose
// them.
#pragma once

#include <cstdint>
#include <string>

#include "smoe/data/batch.h"
#include "smoe/data/tokenizer.h"

namespace smoe {

struct ChatPreviewOptions {
  int64_t segment_length = 32;
  SelectorPosition selector_position = SelectorPosition::kFirst;
  bool color = false;     // ANSI colours instead of marks
  bool show_ids = false;  // token/id
  int64_t width = 110;    // columns of text
};

// Explains the marks or colours.
std::string chat_preview_legend(const ChatPreviewOptions& options);

// Row `row` of a batch of dialogues: each dialogue and each of its segments with their tokens as the
// vocabulary spells them.
std::string chat_preview(const Batch& batch, int64_t row, const Tokenizer& tokenizer,
                         const ChatPreviewOptions& options);

}  // namespace smoe
