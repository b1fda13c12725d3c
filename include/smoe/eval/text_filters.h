// Text operations of benchmark prompts, with the semantics of Python's str: they decide token ids, so they
// follow Unicode and not only ASCII.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/eval/task_config.h"

namespace smoe {

// Without the characters at the left or right end for which Python's str.isspace() holds.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);

// First character in upper case, all others in lower case (simple case mappings).
std::string capitalize(std::string_view text);

// Number of Unicode code points of UTF-8 `text`.
int64_t count_code_points(std::string_view text);

// Number of pieces that splitting at runs of whitespace gives, empty ones at the ends included.
int64_t count_whitespace_pieces(std::string_view text);

// Clean-up of HellaSwag's WikiHow marks: strip, " [title]" becomes ". ", bracketed spans go, double spaces
// become single once.
std::string clean_hellaswag(std::string_view text);

// Undoes the tokenisation of WikiText: " @-@ " becomes "-", punctuation joins the word before it.
std::string clean_wikitext(std::string_view text);

// Spaces instead of underscores.
std::string underscores_to_spaces(std::string_view text);

std::string apply_text_filter(TextFilter filter, std::string_view text);
std::string apply_text_filters(const std::vector<TextFilter>& filters, std::string text);

}  // namespace smoe
