#include "python_regex_translation.h"

#include <cctype>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// The characters of Python's \s and \w. PCRE2's own sets differ: \s lacks U+001C to U+001F and has U+180E,
// and \w has gained marks in version 10.43.
constexpr std::string_view kSpaces =
    "\\t-\\r\\x{1C}-\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"
    "\\x{3000}";
constexpr std::string_view kWords = "\\p{L}\\p{N}_";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (position_ < pattern_.size()) {
      switch (peek()) {
        case '\\':
          translate_escape();
          break;
        case '[':
          translate_class();
          break;
        case '(':
          translate_group();
          break;
        case '{':
          // {,n} is a repetition for Python and plain text for older versions of PCRE2.
          result_ += is_open_repetition() ? "{0" : "{";
          ++position_;
          break;
        default:
          result_ += take();
      }
    }
    return std::move(result_);
  }

 private:
  char peek(size_t offset = 0) const {
    return position_ + offset < pattern_.size() ? pattern_[position_ + offset] : '\0';
  }
  char take() { return pattern_[position_++]; }

  void require(bool condition, std::string_view problem) const {
    SMOE_CHECK(DataError, condition, "the regular expression '{}' (Python syntax) has at offset {} {}",
               pattern_, position_, problem);
  }

  bool is_open_repetition() const {
    size_t offset = 2;
    if (peek(1) != ',' || !std::isdigit(static_cast<unsigned char>(peek(2)))) return false;
    while (std::isdigit(static_cast<unsigned char>(peek(offset)))) ++offset;
    return peek(offset) == '}';
  }

  // Escapes that mean the same inside and outside of a class. Returns whether it was one.
  bool translate_common_escape(char escaped) {
    switch (escaped) {
      case 'v':  // a vertical tab, not PCRE2's class of vertical space
        result_ += "\\x0B";
        return true;
      case 'a':
      case 'f':
      case 'n':
      case 'r':
      case 't':
      case 'd':
      case 'D':
        result_ += {'\\', escaped};
        return true;
      case 'x':
        append_code_point(2);
        return true;
      case 'u':
        append_code_point(4);
        return true;
      case 'U':
        append_code_point(8);
        return true;
      default:
        return false;
    }
  }

  void append_code_point(size_t num_digits) {
    result_ += "\\x{";
    for (size_t i = 0; i < num_digits; ++i) {
      require(std::isxdigit(static_cast<unsigned char>(peek())), "an incomplete escape");
      result_ += take();
    }
    result_ += '}';
  }

  void append_plain_escape(char escaped) {
    require(!std::isalpha(static_cast<unsigned char>(escaped)),
            "a letter after a backslash that is no escape");
    // A backslash before a character outside ASCII is not an escape for PCRE2.
    if (static_cast<unsigned char>(escaped) < 0x80) result_ += '\\';
    result_ += escaped;
  }

  void translate_escape() {
    ++position_;
    require(position_ < pattern_.size(), "a lone backslash at its end");
    const char escaped = take();
    if (translate_common_escape(escaped)) return;
    const std::string word = fmt::format("[{}]", kWords);
    switch (escaped) {
      case 's':
        result_ += fmt::format("[{}]", kSpaces);
        return;
      case 'S':
        result_ += fmt::format("[^{}]", kSpaces);
        return;
      case 'w':
        result_ += word;
        return;
      case 'W':
        result_ += fmt::format("[^{}]", kWords);
        return;
      case 'b':
        result_ += fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word);
        return;
      case 'B':
        result_ += fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
        return;
      case 'A':
        result_ += "\\A";
        return;
      case 'Z':  // the very end, which PCRE2 calls \z
        result_ += "\\z";
        return;
      default:
        append_plain_escape(escaped);
    }
  }

  void translate_class() {
    result_ += take();
    if (peek() == '^') result_ += take();
    if (peek() == ']') {
      result_ += "\\]";
      ++position_;
    }
    while (peek() != ']') {
      require(position_ < pattern_.size(), "a class without its closing bracket");
      const char character = take();
      if (character == '[') {
        result_ += "\\[";  // never the start of a POSIX class
      } else if (character == '\\') {
        translate_class_escape();
      } else {
        result_ += character;
      }
    }
    result_ += take();
  }

  void translate_class_escape() {
    require(position_ < pattern_.size(), "a lone backslash at its end");
    const char escaped = take();
    if (translate_common_escape(escaped)) return;
    require(escaped != 'S' && escaped != 'W', "\\S or \\W inside a class, which is not supported");
    if (escaped == 's') {
      result_ += kSpaces;
    } else if (escaped == 'w') {
      result_ += kWords;
    } else if (escaped == 'b') {
      result_ += "\\x08";
    } else {
      append_plain_escape(escaped);
    }
  }

  void translate_group() {
    const size_t start = position_;
    result_ += take();
    require(peek() != '*', "nothing to repeat");
    if (peek() != '?') return;
    result_ += take();
    const char kind = peek();
    if (kind == ':' || kind == '=' || kind == '!' || kind == '>' || kind == '#') return;
    if (kind == '<') {
      require(peek(1) == '=' || peek(1) == '!', "an unknown kind of group");
    } else if (kind == 'P') {
      require(peek(1) == '<' || peek(1) == '=', "an unknown kind of group");
    } else if (kind == '(') {
      require(std::isdigit(static_cast<unsigned char>(peek(1))), "a condition that is not a group number");
      result_ += take();
    } else {
      translate_flags(start);
    }
  }

  void translate_flags(size_t start) {
    for (; peek() != ')' && peek() != ':'; ++position_) {
      const char flag = peek();
      require(flag == 'i' || flag == 'm' || flag == 's' || flag == 'u' || flag == '-',
              "an unknown kind of group, or a flag other than i, m, s and u");
      if (flag != 'u') result_ += flag;  // Unicode is what str has anyway
    }
    require(peek() == ':' || start == 0, "flags for all of it that are not at the start");
  }

  std::string_view pattern_;
  size_t position_ = 0;
  std::string result_;
};

}  // namespace

std::string translate_python_regex(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace smoe
