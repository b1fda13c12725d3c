// A compiled regular expression in PCRE2's own syntax, over UTF-8 text with Unicode classes and \n as the
// only line end. Dialects of other engines (tokenizers, Python) are translated to it by their users.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace smoe {

// Half-open range of bytes; both ends are npos for a group that took no part in a match.
struct TextRange {
  size_t begin = std::string_view::npos;
  size_t end = std::string_view::npos;
};

struct RegularExpressionOptions {
  bool ignore_case = false;
  bool multiline = false;                  // ^ and $ also at the lines' ends
  bool match_after_final_newline = false;  // with multiline, ^ also matches behind a \n that ends the text
  bool limit_effort = true;  // stop with an error where a match needs more than ten million steps
  bool assume_utf8 = false;  // the caller knows that texts are valid UTF-8: they are not checked
};

class RegularExpression {
 public:
  // Throws DataError with the place and reason where the pattern cannot be compiled. `original` is the
  // pattern that messages show, where `pattern` is a translation of it.
  RegularExpression(std::string_view pattern, const RegularExpressionOptions& options,
                    std::string_view original = {});
  ~RegularExpression();
  RegularExpression(RegularExpression&&) noexcept;
  RegularExpression& operator=(RegularExpression&&) noexcept;

  // Number of capturing groups.
  size_t num_groups() const;

  // The matches in one text. Threads may search with one expression at the same time, each by its own Search.
  // Neither the expression nor the text may go away before.
  class Search {
   public:
    Search(const RegularExpression& expression, std::string_view text);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;

    // Finds the first match at or after byte `position`; without `allow_empty_here`, none that is empty at
    // `position` itself. Throws DataError where the text is not UTF-8 or a limit is reached.
    bool find(size_t position, bool allow_empty_here = true);
    // A group of the match found last; 0 is the whole match.
    TextRange group(size_t index) const;

   private:
    struct Scratch;
    const RegularExpression& expression_;
    std::string_view text_;
    bool checked_ = false;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace smoe
