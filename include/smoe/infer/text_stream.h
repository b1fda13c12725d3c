// From a growing list of token ids to text that can be shown while it grows: never half a character, never
// the beginning of a stop string, and in the end exactly the text of all ids, cut at the earliest stop
// string.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/data/tokenizer.h"

namespace smoe {

// Decodes one id at a time. A token's text depends on its neighbours (a SentencePiece text loses its first
// space, a character may span tokens), so that a window of ids is decoded again and only what is new is given
// out. The cost of a token does not grow with the length of the text.
class IncrementalDecoder {
 public:
  // `context`: ids that stand before the text; the text is then what they are continued with, including a
  // leading space that decoding by itself would lose. `tokenizer` must outlive the decoder.
  explicit IncrementalDecoder(const Tokenizer& tokenizer, const std::vector<int32_t>& context = {});

  // The text that is complete with `id`.
  std::string push(int32_t id);
  // The text that was held back: characters that never became complete, as U+FFFD.
  std::string finish();

 private:
  void shorten_window(const std::string& text);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> window_;
  size_t given_out_ = 0;  // bytes of the window's text
};

// Finds stop strings in text that comes in pieces.
class StopMatcher {
 public:
  // `ending`: text that is left out at the end. Throws ConfigError for an empty stop string.
  explicit StopMatcher(std::vector<std::string> stops, std::string ending = "");

  // The text that cannot belong to a stop string or to the ending any more. After a match: nothing.
  std::string push(std::string_view text);
  // The text that was held back. With `drops_ending` without the ending, if the text ends with it.
  std::string finish(bool drops_ending = false);
  // The stop string that was found.
  const std::optional<std::string>& match() const { return match_; }

 private:
  size_t held_back() const;

  std::vector<std::string> stops_;
  std::string ending_;
  std::string pending_;
  std::optional<std::string> match_;
};

// Both in a row.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops,
             const std::vector<int32_t>& context = {}, std::string ending = "");

  std::string push(int32_t id);
  std::string finish(bool drops_ending = false);
  const std::optional<std::string>& match() const { return stops_.match(); }

 private:
  IncrementalDecoder decoder_;
  StopMatcher stops_;
};

}  // namespace smoe
