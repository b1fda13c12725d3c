// What the five IFEval checkers need that outside models decide in the published tool: the language of a text
// (here CLD2, there langdetect), sentences (here ICU, there NLTK's Punkt) and word tokens (here a few rules,
// there NLTK's tokenizer). Close, not equal: docs/evaluation.md has the measured agreement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace smoe {

// ISO 639-1 code of the main language ("zh-cn" and "zh-tw" for Chinese); "un" where none can be told, nullopt
// where the text has no letter at all.
std::optional<std::string> detect_language(std::string_view text);

// Number of English sentences. A line end alone ends no sentence.
int64_t count_sentences(std::string_view text);

// Number of word tokens all of whose letters are capital: words are cut at most punctuation, and contractions
// into their two parts.
int64_t count_capital_words(std::string_view text);

}  // namespace smoe
