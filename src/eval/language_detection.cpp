#include "smoe/eval/language_detection.h"

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>
#include <unicode/brkiter.h>
#include <unicode/locid.h>
#include <unicode/unistr.h>

#include <array>
#include <memory>
#include <utility>

#include "smoe/core/error.h"
#include "smoe/eval/python_regex.h"
#include "smoe/eval/python_text.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

// CLD2 has some codes that ISO 639-1 has replaced, or that langdetect writes otherwise.
std::string published_code(CLD2::Language language) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kRenamed = {
      {{"iw", "he"}, {"zh", "zh-cn"}, {"zh-Hant", "zh-tw"}, {"nb", "no"}}};
  const std::string code = CLD2::LanguageCode(language);
  for (const auto& [from, to] : kRenamed) {
    if (code == from) return std::string(to);
  }
  return code;
}

// Where to cut contractions that are written as one word: CAN|NOT, GIM|ME, ...
std::optional<size_t> first_part_length(std::string_view lower_case) {
  static constexpr std::array<std::pair<std::string_view, size_t>, 8> kContractions = {{{"cannot", 3},
                                                                                        {"gimme", 3},
                                                                                        {"gonna", 3},
                                                                                        {"gotta", 3},
                                                                                        {"lemme", 3},
                                                                                        {"wanna", 3},
                                                                                        {"'tis", 2},
                                                                                        {"'twas", 2}}};
  for (const auto& [word, length] : kContractions) {
    if (lower_case == word) return length;
  }
  for (const std::string_view ending : {"n't", "'ll", "'re", "'ve", "'s", "'m", "'d"}) {
    if (lower_case.ends_with(ending) && lower_case.size() > ending.size()) {
      return lower_case.size() - ending.size();
    }
  }
  return std::nullopt;
}

int64_t count_capital_parts(std::string_view token) {
  const std::optional<size_t> cut = first_part_length(lower(token));
  if (!cut) return is_upper(token) ? 1 : 0;
  return (is_upper(token.substr(0, *cut)) ? 1 : 0) + (is_upper(token.substr(*cut)) ? 1 : 0);
}

}  // namespace

std::optional<std::string> detect_language(std::string_view text) {
  SMOE_CHECK(DataError, is_utf8(text), "the language of a text cannot be told: it is not UTF-8");
  if (!has_letter(text)) return std::nullopt;
  const std::string clean = without_controls(text);
  std::array<CLD2::Language, 3> languages{};
  std::array<int, 3> percent{};
  std::array<double, 3> scores{};
  int text_bytes = 0;
  bool is_reliable = false;
  const CLD2::CLDHints no_hints{nullptr, nullptr, CLD2::UNKNOWN_ENCODING, CLD2::UNKNOWN_LANGUAGE};
  CLD2::ExtDetectLanguageSummary(clean.data(), static_cast<int>(clean.size()), /*is_plain_text=*/true,
                                 &no_hints, CLD2::kCLDFlagBestEffort, languages.data(), percent.data(),
                                 scores.data(), nullptr, &text_bytes, &is_reliable);
  return published_code(languages[0]);
}

int64_t count_sentences(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  // "ss-standard": no break behind the abbreviations that ICU's data lists.
  const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createSentenceInstance(icu::Locale::createFromName("en@ss=standard"), status));
  SMOE_CHECK(Error, U_SUCCESS(status), "ICU has no data to find sentences: {}", u_errorName(status));
  // Where ICU and Punkt differ most: ICU ends a sentence at every line end, and at an ellipsis, and ends none
  // before a hyphen, not even one that begins the next entry of a list.
  static const PythonRegex line_ends(R"(\s*\n\s*(?:-+\s+)?)");
  static const PythonRegex ellipses(R"(\.\.+)");
  const std::string one_line = ellipses.substitute(line_ends.substitute(strip(text), " "), "\u2026");
  const icu::UnicodeString unicode =
      icu::UnicodeString::fromUTF8(icu::StringPiece(one_line.data(), static_cast<int32_t>(one_line.size())));
  breaks->setText(unicode);
  int64_t count = 0;
  breaks->first();
  while (breaks->next() != icu::BreakIterator::DONE) ++count;
  return count;
}

int64_t count_capital_words(std::string_view text) {
  // Cuts: commas and colons unless a digit follows, this punctuation, and runs of two hyphens.
  static const PythonRegex cuts(R"([,:](?!\d)|[;@#$%&?!()\[\]{}<>"“”„«»‹›‘’…]|--+)");
  int64_t count = 0;
  for (const std::string_view word : split_at_spaces(text)) {
    for (const std::string& token : cuts.split(word)) count += count_capital_parts(token);
  }
  return count;
}

}  // namespace smoe
