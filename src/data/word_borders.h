// Where text can be cut so that SentencePiece makes the same pieces of the parts as of the whole (internal to
// the tokenizers). BPE joins neighbours only into pieces of the vocabulary: between two bytes that stand side
// by side in no piece, nothing is ever joined.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smoe {

class WordBorders {
 public:
  // `model` is the serialised model, `pieces` are all spellings of its vocabulary. Nothing for models in
  // which the parts could differ: unigram, whose sums of scores round differently in a longer text; models
  // that change text before they encode it, other than spaces into U+2581; and models that join unknown
  // characters into one token.
  static std::optional<WordBorders> of(std::string_view model, const std::vector<std::string>& pieces);

  // The first border after `begin`, which is inside valid UTF-8 `text`; at most its end.
  size_t next(std::string_view text, size_t begin) const;

 private:
  void join(const std::string& piece);

  std::array<std::bitset<256>, 256> joined_;  // [left byte][right byte]: they are side by side in a piece
};

}  // namespace smoe
