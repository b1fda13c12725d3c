#include "smoe/routing/chat_segments.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/routing/segment_runs.h"

namespace smoe {
namespace {

void append_dialogue(SegmentMap& map, int64_t row, const ChatSpan& dialogue, int64_t segment_length,
                     SelectorPosition position) {
  int64_t prompt_begin = dialogue.begin;
  for (const ResponseSpan& response : dialogue.responses) {
    SMOE_ASSERT(response.begin > prompt_begin && response.end >= response.begin &&
                response.end <= dialogue.end);
    const int64_t first_end = std::min(response.begin + segment_length, response.end);
    map.segments.push_back({row, prompt_begin, first_end, response.begin - 1});
    append_runs(map, row, {dialogue.begin, first_end, response.end}, segment_length, position);
    prompt_begin = response.end;
  }
  append_runs(map, row, {dialogue.begin, prompt_begin, dialogue.end}, segment_length, position);
}

}  // namespace

SegmentMap chat_segments(const std::vector<ChatRow>& rows, int64_t num_tokens, int64_t segment_length,
                         SelectorPosition position) {
  SMOE_ASSERT(num_tokens >= 1 && segment_length >= 1);
  SegmentMap map{static_cast<int64_t>(rows.size()), num_tokens, {}};
  for (int64_t row = 0; row < map.num_rows; ++row) {
    int64_t at = 0;
    for (const ChatSpan& dialogue : rows[static_cast<size_t>(row)]) {
      SMOE_ASSERT(dialogue.begin == at && dialogue.end > at && dialogue.end <= num_tokens);
      append_dialogue(map, row, dialogue, segment_length, position);
      at = dialogue.end;
    }
    append_padding(map, row, at);
  }
  return map;
}

}  // namespace smoe
