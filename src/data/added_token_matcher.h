// Finds the spellings of added tokens (<|im_end|>, <s>, runs of spaces) in text (internal to the tokenizers).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace smoe {

// The fields have the meaning they have in a Hugging Face tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // swallows the white space to its left
  bool rstrip = false;       // swallows the white space to its right
};

enum class SpecialTokens {
  kAsText,  // spellings of special tokens are ordinary text; those of other added tokens still count
  kAsIds,
};

// A stretch of text, or one added token where `id` is not negative.
struct TextPart {
  std::string_view text;
  int32_t id = -1;
};

class AddedTokenMatcher {
 public:
  // `content` must not be empty.
  void add(AddedToken token);

  // Cuts valid UTF-8 `text` at added tokens: leftmost first, longest among those that start together. Parts
  // are views into `text`; empty stretches are left out.
  std::vector<TextPart> split(std::string_view text, SpecialTokens mode) const;

 private:
  struct Child {
    uint8_t byte;
    uint32_t node;
  };
  // A trie: a position where no token starts is left after one or two comparisons.
  struct Node {
    std::vector<Child> children;
    int32_t token = -1;  // index into tokens_ of the one that ends here
  };

  const AddedToken* longest_at(std::string_view text, size_t position) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  bool starts_token_[256] = {};
};

}  // namespace smoe
