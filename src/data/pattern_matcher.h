// A compiled regular expression for pre-tokenizers, run by PCRE2 (internal to the tokenizers).
//
// The patterns in tokenizer.json files are written for Oniguruma's Ruby syntax; the options are set so that
// PCRE2 reads those patterns alike: UTF-8, Unicode classes, ^ and $ at every line, \n as the only line end.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace smoe {

// Half-open range of bytes.
struct TextRange {
  size_t begin;
  size_t end;
};

class PatternMatcher {
 public:
  // Throws DataError with the place and reason where the pattern cannot be compiled.
  explicit PatternMatcher(std::string_view pattern);
  ~PatternMatcher();
  PatternMatcher(PatternMatcher&&) noexcept;
  PatternMatcher& operator=(PatternMatcher&&) noexcept;

  // All matches in valid UTF-8 `text`, from left to right, without overlap. Thread-safe.
  void find_all(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace smoe
