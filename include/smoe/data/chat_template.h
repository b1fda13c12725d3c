// Chat templates as data: which text stands around the messages of a dialogue, and what ends an answer.
// chat_renderer.h applies them.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "smoe/core/config.h"
#include "smoe/data/bos_policy.h"

namespace smoe {

template <>
struct EnumNames<BosPolicy> {
  static constexpr std::array values = {
      enum_name(BosPolicy::kAuto, "auto"), enum_name(BosPolicy::kAlways, "always"),
      enum_name(BosPolicy::kNever, "never"), enum_name(BosPolicy::kEos, "eos")};
};

// The text around a message that is only read.
struct MessageFrame {
  std::string prefix;
  std::string suffix;
};
template <class Visitor>
void visit_fields(Visitor& visitor, MessageFrame& frame) {
  visitor.field("prefix", frame.prefix, "text before the content");
  visitor.field("suffix", frame.suffix, "text after the content");
}

// The text around an answer. Trained are the content, `end` and EOS; prefix and suffix are only read.
struct AnswerFrame {
  std::string prefix;
  std::string end;
  bool end_with_eos = false;
  std::string suffix;
};
template <class Visitor>
void visit_fields(Visitor& visitor, AnswerFrame& frame) {
  visitor.field("prefix", frame.prefix, "text before an answer; generation starts after it");
  visitor.field("end", frame.end,
                "text that ends an answer, a part of it in training; generation stops at it");
  visitor.field("end_with_eos", frame.end_with_eos,
                "the tokenizer's EOS follows `end`, a part of the answer too");
  visitor.field("suffix", frame.suffix, "text between an answer and the next message");
}

struct ChatTemplate {
  std::string name;
  BosPolicy bos = BosPolicy::kAuto;
  MessageFrame system;
  MessageFrame user;
  AnswerFrame assistant;
  bool trim_content = false;
  std::vector<std::string> special_tokens;
  bool allow_plain_text_pieces = false;
};
template <class Visitor>
void visit_fields(Visitor& visitor, ChatTemplate& chat) {
  visitor.field("name", chat.name, "label in messages");
  visitor.field("bos", chat.bos, "token before the first message: auto is BOS where the tokenizer has one");
  visitor.field("system", chat.system, "frame of the system message, if a dialogue has one");
  visitor.field("user", chat.user, "frame of a user's message");
  visitor.field("assistant", chat.assistant, "frame of an answer");
  visitor.field("trim_content", chat.trim_content, "white space at both ends of every content is dropped");
  visitor.field("special_tokens", chat.special_tokens,
                "spellings in the pieces above that must be single special tokens of the tokenizer");
  visitor.field(
      "allow_plain_text_pieces", chat.allow_plain_text_pieces,
      "special_tokens that the tokenizer lacks are written as plain text instead of being an error");
}

// A name is given; an answer has an end; what is spelled like a special token (<|...|>) is listed as one.
void validate(const ChatTemplate& chat, ConfigProblems& problems);

// Reads a template with the strict config reader. Throws ConfigError.
ChatTemplate load_chat_template(const std::filesystem::path& file);

// The file under which a checkpoint keeps its template.
inline constexpr const char* kChatTemplateFile = "chat_template.yaml";

// The template that a checkpoint was fine-tuned with. Throws CheckpointError if it has none.
ChatTemplate checkpoint_chat_template(const std::filesystem::path& checkpoint);

}  // namespace smoe
