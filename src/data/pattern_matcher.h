// A compiled regular expression for pre-tokenizers, run by PCRE2 (internal to the tokenizers).
//
// The patterns in tokenizer.json files are written for Oniguruma's Ruby syntax; the options are set so that
// PCRE2 reads those patterns alike: UTF-8, Unicode classes, ^ and $ at every line, \n as the only line end.
#pragma once

#include <string_view>
#include <vector>

#include "smoe/core/regular_expression.h"

namespace smoe {

class PatternMatcher {
 public:
  // Throws DataError with the place and reason where the pattern cannot be compiled.
  explicit PatternMatcher(std::string_view pattern);

  // All matches in valid UTF-8 `text`, from left to right, without overlap. Thread-safe.
  void find_all(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  RegularExpression expression_;
};

}  // namespace smoe
