// is_python_json: a reader of its own, because JSON libraries refuse values that Python takes, and recurse on
// input that a model may nest thousands deep.
#include <cctype>
#include <string>

#include "smoe/eval/python_text.h"

namespace smoe {
namespace {

class JsonChecker {
 public:
  explicit JsonChecker(std::string_view text) : text_(text) {}

  bool run() {
    while (true) {
      const Step step = begin_value();
      if (step == Step::kBad) return false;
      if (step == Step::kOpened) continue;
      // The value is complete: close what it ends, up to the next comma.
      const Step after = end_value();
      if (after == Step::kBad) return false;
      if (after == Step::kDone) return true;
    }
  }

 private:
  enum class Step { kBad, kOpened, kComplete, kNext, kDone };

  char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  bool take(char character) {
    if (peek() != character || position_ >= text_.size()) return false;
    ++position_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(position_).starts_with(word)) return false;
    position_ += word.size();
    return true;
  }
  void skip_spaces() {
    while (position_ < text_.size() && std::string_view(" \t\n\r").find(peek()) != std::string_view::npos) {
      ++position_;
    }
  }

  Step begin_value() {
    skip_spaces();
    if (take('{')) {
      skip_spaces();
      if (take('}')) return Step::kComplete;
      open_ += '{';
      return key() ? Step::kOpened : Step::kBad;
    }
    if (take('[')) {
      skip_spaces();
      if (take(']')) return Step::kComplete;
      open_ += '[';
      return Step::kOpened;
    }
    return scalar() ? Step::kComplete : Step::kBad;
  }

  Step end_value() {
    while (true) {
      skip_spaces();
      if (open_.empty()) return position_ == text_.size() ? Step::kDone : Step::kBad;
      const bool in_object = open_.back() == '{';
      if (take(',')) {
        if (!in_object) return Step::kNext;
        skip_spaces();
        return key() ? Step::kNext : Step::kBad;
      }
      if (!take(in_object ? '}' : ']')) return Step::kBad;
      open_.pop_back();
    }
  }

  bool key() {
    if (!string()) return false;
    skip_spaces();
    return take(':');
  }

  bool scalar() {
    if (peek() == '"') return string();
    for (const std::string_view word : {"null", "true", "false", "NaN", "Infinity", "-Infinity"}) {
      if (take(word)) return true;
    }
    return number();
  }

  bool string() {
    if (!take('"')) return false;
    while (position_ < text_.size()) {
      const char character = text_[position_++];
      if (character == '"') return true;
      if (static_cast<unsigned char>(character) < 0x20) return false;
      if (character == '\\' && !escape()) return false;
    }
    return false;
  }

  bool escape() {
    if (position_ >= text_.size()) return false;
    const char kind = text_[position_++];
    if (kind != 'u') return std::string_view("\"\\/bfnrt").find(kind) != std::string_view::npos;
    for (int i = 0; i < 4; ++i, ++position_) {
      if (!std::isxdigit(static_cast<unsigned char>(peek()))) return false;
    }
    return true;
  }

  size_t digits() {
    const size_t start = position_;
    while (std::isdigit(static_cast<unsigned char>(peek()))) ++position_;
    return position_ - start;
  }

  // Where a fraction or exponent is not complete, the number ends before it, and what follows spoils the
  // text.
  bool number() {
    constexpr size_t kLongestInteger = 4300;  // of int() since Python 3.11
    take('-');
    const size_t num_digits = take('0') ? 1 : digits();
    if (num_digits == 0) return false;
    bool is_integer = true;
    size_t start = position_;
    if (take('.')) {
      if (digits() == 0) position_ = start;
      is_integer = position_ == start;
    }
    start = position_;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (digits() == 0) position_ = start;
      is_integer = is_integer && position_ == start;
    }
    return !is_integer || num_digits <= kLongestInteger;
  }

  std::string_view text_;
  size_t position_ = 0;
  std::string open_;  // the brackets around the place
};

}  // namespace

bool is_python_json(std::string_view text) { return JsonChecker(text).run(); }

}  // namespace smoe
