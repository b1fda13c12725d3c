// Config of the data of supervised fine-tuning, besides what it shares with pre-training (data_config.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "smoe/core/config.h"

namespace smoe {

// What happens to a dialogue of more tokens than a row has.
enum class TooLongPolicy {
  kDrop,          // it is left out, and counted
  kTruncateLeft,  // its beginning is dropped (BOS stays); left out if that leaves no whole answer; counted
  kError,
};
template <>
struct EnumNames<TooLongPolicy> {
  static constexpr std::array values = {enum_name(TooLongPolicy::kDrop, "drop"),
                                        enum_name(TooLongPolicy::kTruncateLeft, "truncate_left"),
                                        enum_name(TooLongPolicy::kError, "error")};
};

struct SftConfig {
  std::string chat_template;
  TooLongPolicy too_long = TooLongPolicy::kDrop;
  int64_t packing_window = 4096;
};
template <class Visitor>
void visit_fields(Visitor& visitor, SftConfig& config) {
  visitor.field("chat_template", config.chat_template, "YAML of the chat template (configs/chat_templates)");
  visitor.field("too_long", config.too_long,
                "dialogues longer than sequence_length: leave out, cut the beginning, or stop");
  visitor.field("packing_window", config.packing_window,
                "dialogues, in shuffled order, that are packed into rows together; larger fills rows better",
                at_least(1));
}

}  // namespace smoe
