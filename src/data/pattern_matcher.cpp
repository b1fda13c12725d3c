#include "pattern_matcher.h"

#include "smoe/core/error.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <limits>

#include "utf8.h"

namespace smoe {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

PCRE2_SPTR pointer_of(std::string_view text) {
  // PCRE2 refuses a null pointer even for an empty subject.
  return reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
}

// PCRE2 counts U+180E as white space; Unicode and Oniguruma have not done so since Unicode 6.3. Inside a
// class `\S` has no such spelling and stays as it is. What Oniguruma alone understands is refused.
std::string translate(std::string_view pattern) {
  static constexpr std::string_view kSpaces =
      "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}"
      "\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
  std::string result;
  bool in_class = false;
  for (size_t position = 0; position < pattern.size(); ++position) {
    const char character = pattern[position];
    if (character == '\\' && position + 1 < pattern.size()) {
      const char escaped = pattern[++position];
      if (escaped == 's') {
        result += in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
      } else if (escaped == 'S' && !in_class) {
        result += fmt::format("[^{}]", kSpaces);
      } else {
        result += {'\\', escaped};
      }
      continue;
    }
    SMOE_CHECK(DataError, !in_class || (character != '[' && pattern.substr(position, 2) != "&&"),
               "the regular expression '{}' has '{}' inside a class at offset {}; nested classes and "
               "intersections are not supported",
               pattern, character, position);
    in_class = character == '[' || (in_class && character != ']');
    result += character;
  }
  return result;
}

}  // namespace

struct PatternMatcher::Implementation {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context;
};

PatternMatcher::PatternMatcher(std::string_view pattern)
    : implementation_(std::make_unique<Implementation>()) {
  std::unique_ptr<pcre2_compile_context, FreeCompileContext> compile(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(compile.get(), PCRE2_NEWLINE_LF);
  const std::string translated = translate(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  implementation_->code.reset(pcre2_compile(pointer_of(translated), translated.size(),
                                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset,
                                            compile.get()));
  SMOE_CHECK(DataError, implementation_->code != nullptr,
             "the regular expression '{}' cannot be compiled: {} at offset {} of '{}'", pattern,
             pcre2_message(error), offset, translated);
  // Without JIT support on this machine the interpreter does the same, more slowly.
  pcre2_jit_compile(implementation_->code.get(), PCRE2_JIT_COMPLETE);
  // A run of a million spaces is legal text: the default limits are for untrusted patterns.
  implementation_->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(implementation_->context.get(), std::numeric_limits<uint32_t>::max());
  pcre2_set_depth_limit(implementation_->context.get(), std::numeric_limits<uint32_t>::max());
  pcre2_set_heap_limit(implementation_->context.get(), std::numeric_limits<uint32_t>::max());
}

PatternMatcher::~PatternMatcher() = default;
PatternMatcher::PatternMatcher(PatternMatcher&&) noexcept = default;
PatternMatcher& PatternMatcher::operator=(PatternMatcher&&) noexcept = default;

void PatternMatcher::find_all(std::string_view text, std::vector<TextRange>& matches) const {
  matches.clear();
  const pcre2_code* code = implementation_->code.get();
  pcre2_match_context* context = implementation_->context.get();
  std::unique_ptr<pcre2_match_data, FreeMatchData> data(pcre2_match_data_create_from_pattern(code, nullptr));
  for (size_t position = 0; position <= text.size();) {
    int count =
        pcre2_match(code, pointer_of(text), text.size(), position, PCRE2_NO_UTF_CHECK, data.get(), context);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = pcre2_match(code, pointer_of(text), text.size(), position, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          data.get(), context);
    }
    if (count == PCRE2_ERROR_NOMATCH) {
      return;
    }
    SMOE_CHECK(DataError, count >= 0,
               "a pre-tokenizer's regular expression failed at byte {} of a text of {} bytes: {}", position,
               text.size(), pcre2_message(count));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    matches.push_back({bounds[0], bounds[1]});
    position = bounds[1];
    if (bounds[0] == bounds[1]) {
      if (position == text.size()) {
        return;
      }
      next_code_point(text, position);
    }
  }
}

}  // namespace smoe
