#include "smoe/core/regular_expression.h"

#include "smoe/core/error.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <limits>

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

uint32_t compile_flags(const RegularExpressionOptions& options) {
  return PCRE2_UTF | PCRE2_UCP | (options.ignore_case ? PCRE2_CASELESS : 0) |
         (options.multiline ? PCRE2_MULTILINE : 0) |
         (options.match_after_final_newline ? PCRE2_ALT_CIRCUMFLEX : 0);
}

}  // namespace

struct RegularExpression::Implementation {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context;
  std::string original;
  bool assume_utf8 = false;
};

RegularExpression::RegularExpression(std::string_view pattern, const RegularExpressionOptions& options,
                                     std::string_view original)
    : implementation_(std::make_unique<Implementation>()) {
  implementation_->original = original.empty() ? pattern : original;
  implementation_->assume_utf8 = options.assume_utf8;
  std::unique_ptr<pcre2_compile_context, FreeCompileContext> compile(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(compile.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  implementation_->code.reset(pcre2_compile(pointer_of(pattern), pattern.size(), compile_flags(options),
                                            &error, &offset, compile.get()));
  SMOE_CHECK(DataError, implementation_->code != nullptr,
             "the regular expression '{}' cannot be compiled: {} at offset {} of '{}'",
             implementation_->original, pcre2_message(error), offset, pattern);
  // Without JIT support on this machine the interpreter does the same, more slowly.
  pcre2_jit_compile(implementation_->code.get(), PCRE2_JIT_COMPLETE);
  implementation_->context.reset(pcre2_match_context_create(nullptr));
  if (!options.limit_effort) {
    constexpr auto kNoLimit = std::numeric_limits<uint32_t>::max();
    pcre2_set_match_limit(implementation_->context.get(), kNoLimit);
    pcre2_set_depth_limit(implementation_->context.get(), kNoLimit);
    pcre2_set_heap_limit(implementation_->context.get(), kNoLimit);
  }
}

RegularExpression::~RegularExpression() = default;
RegularExpression::RegularExpression(RegularExpression&&) noexcept = default;
RegularExpression& RegularExpression::operator=(RegularExpression&&) noexcept = default;

size_t RegularExpression::num_groups() const {
  uint32_t count = 0;
  pcre2_pattern_info(implementation_->code.get(), PCRE2_INFO_CAPTURECOUNT, &count);
  return count;
}

struct RegularExpression::Search::Scratch {
  std::unique_ptr<pcre2_match_data, FreeMatchData> data;
};

RegularExpression::Search::Search(const RegularExpression& expression, std::string_view text)
    : expression_(expression),
      text_(text),
      checked_(expression.implementation_->assume_utf8),
      scratch_(std::make_unique<Scratch>()) {
  scratch_->data.reset(pcre2_match_data_create_from_pattern(expression.implementation_->code.get(), nullptr));
}

RegularExpression::Search::~Search() = default;

bool RegularExpression::Search::find(size_t position, bool allow_empty_here) {
  const Implementation& implementation = *expression_.implementation_;
  // One check of the whole text is enough; at every match it would make a search quadratic.
  const uint32_t flags =
      (checked_ ? PCRE2_NO_UTF_CHECK : 0) | (allow_empty_here ? 0 : PCRE2_NOTEMPTY_ATSTART);
  const auto match = [&](uint32_t more_flags) {
    return pcre2_match(implementation.code.get(), pointer_of(text_), text_.size(), position,
                       flags | more_flags, scratch_->data.get(), implementation.context.get());
  };
  int count = match(0);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(PCRE2_NO_JIT);
  SMOE_CHECK(DataError, count >= 0 || count == PCRE2_ERROR_NOMATCH,
             "the regular expression '{}' failed at byte {} of a text of {} bytes: {}",
             implementation.original, position, text_.size(), pcre2_message(count));
  checked_ = true;
  return count >= 0;
}

TextRange RegularExpression::Search::group(size_t index) const {
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch_->data.get());
  if (index >= pcre2_get_ovector_count(scratch_->data.get()) || bounds[2 * index] == PCRE2_UNSET) return {};
  return {bounds[2 * index], bounds[2 * index + 1]};
}

}  // namespace smoe
