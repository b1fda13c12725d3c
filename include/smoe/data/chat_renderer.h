// Applies a chat template to dialogues: token ids together with what of them is trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smoe/data/chat_message.h"
#include "smoe/data/chat_template.h"
#include "smoe/data/tokenizer.h"
#include "smoe/routing/chat_segments.h"

namespace smoe {

// One dialogue of n tokens: n - 1 pairs of input (token i) and target (token i + 1).
struct ChatExample {
  std::vector<int32_t> tokens;          // [n]
  std::vector<uint8_t> is_target;       // [n] 1 where the token is trained when it is the target; never at 0
  std::vector<ResponseSpan> responses;  // where is_target is 1: content, end text and EOS of each answer
  std::vector<int64_t> response_bytes;  // UTF-8 bytes of each answer's content
  int64_t num_leading = 0;              // 1 with BOS

  int64_t num_pairs() const { return static_cast<int64_t>(tokens.size()) - 1; }
};

// Drops tokens after BOS until at most `max_pairs` pairs are left. An answer that has lost its beginning
// stays as context and is not trained. False if no answer is left to train.
bool truncate_left(ChatExample& example, int64_t max_pairs);

// How generation knows that an answer has ended.
struct ChatStop {
  std::vector<int32_t> tokens;
  std::vector<std::string> texts;
  std::string ending;  // text that stands before the token of `tokens` and is no part of the answer
};

class ChatRenderer {
 public:
  // `tokenizer` must outlive the renderer. Throws ConfigError if the tokenizer lacks BOS, EOS or a special
  // token that the template needs, or if it gives a special token for plain text.
  ChatRenderer(ChatTemplate chat, const Tokenizer& tokenizer);

  // A dialogue for training, as parse_conversation gives it. It ends with its last answer: the template's
  // suffix of that one is left out. Pieces of the template are encoded with special tokens, contents without:
  // what a content spells is text. Throws DataError if the template and the messages leave no token before an
  // answer. Thread-safe.
  ChatExample render(const Conversation& messages) const;

  // The tokens after which the answer to a dialogue begins (its last message is the user's), with the answers
  // that the dialogue has already.
  ChatExample open_dialogue(const Conversation& messages) const;
  // Its tokens alone.
  std::vector<int32_t> prompt(const Conversation& messages) const;

  const ChatStop& stop() const { return stop_; }
  const ChatTemplate& chat_template() const { return chat_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  using Ids = std::vector<int32_t>;
  void check_special_tokens() const;
  Ids content_ids(const std::string& content) const;
  void append_message(const ChatMessage& message, ChatExample& example) const;
  void append_answer(const ChatMessage& message, bool is_last, ChatExample& example) const;

  ChatTemplate chat_;
  const Tokenizer& tokenizer_;
  std::optional<int32_t> leading_;
  Ids system_prefix_, system_suffix_, user_prefix_, user_suffix_;
  Ids answer_prefix_, answer_end_, answer_suffix_;  // `answer_end_` with EOS
  ChatStop stop_;
};

}  // namespace smoe
