// Cuts text into the words that byte-pair merges may not cross (internal to the tokenizers).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "json_cursor.h"
#include "pattern_matcher.h"

namespace smoe {

// What becomes of the matches of a pattern, and of the text between them.
enum class SplitBehavior {
  kRemoved,             // matches are dropped
  kIsolated,            // each match is a word
  kMergedWithPrevious,  // a match is the end of the word before it
  kMergedWithNext,      // a match is the start of the word after it
  kContiguous,          // neighbouring matches are one word
};

// A sequence of the pre-tokenizers Split, Digits and ByteLevel of a Hugging Face tokenizer.json. ByteLevel
// must be the last of them: what it does to bytes happens in the vocabulary.
class PreTokenizer {
 public:
  // `config` is the object `pre_tokenizer`. Throws DataError for anything that is not supported.
  explicit PreTokenizer(const JsonCursor& config);

  // True where a space is put before a text that does not start with one.
  bool adds_prefix_space() const { return adds_prefix_space_; }

  // The words of valid UTF-8 `text`, in order, as views into it.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Step {
    PatternMatcher matcher;
    SplitBehavior behavior;
    bool invert;  // the text between the matches counts as matched, and the matches as what is between
  };

  void add_steps(const JsonCursor& config);
  void add_split(const JsonCursor& config);
  void add_byte_level(const JsonCursor& config);
  void add_pattern(const JsonCursor& config, std::string_view pattern, SplitBehavior behavior, bool invert);

  std::vector<Step> steps_;
  bool adds_prefix_space_ = false;
  bool has_byte_level_ = false;
};

}  // namespace smoe
