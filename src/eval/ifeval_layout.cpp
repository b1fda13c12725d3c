// IFEval's checkers of paragraphs, sections, lists, marks and other layout.
#include <array>
#include <memory>

#include "ifeval_checkers.h"
#include "smoe/eval/python_regex.h"
#include "smoe/eval/python_text.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

bool is_blank(std::string_view text) { return strip(text).empty(); }

// Pieces that are not blank; -1 if one is blank that is neither the first nor the last.
template <class Pieces>
int64_t count_pieces(const Pieces& pieces) {
  int64_t count = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!is_blank(pieces[i])) {
      ++count;
    } else if (i != 0 && i != pieces.size() - 1) {
      return -1;
    }
  }
  return count;
}

IfevalCheck number_paragraphs(const IfevalArguments& arguments) {
  const int64_t wanted = arguments.positive("num_paragraphs");
  return [wanted](const std::string& response) {
    static const PythonRegex divider(R"(\s?\*\*\*\s?)");
    return count_pieces(divider.split(response)) == wanted;
  };
}

std::string first_word_of(std::string_view paragraph) {
  std::string_view word = split_at_spaces(paragraph).front();
  word = strip_left_character(strip_left_character(word, '\''), '"');
  return lower_each_character(word.substr(0, word.find_first_of(".,?!'\"")));
}

IfevalCheck nth_paragraph_first_word(const IfevalArguments& arguments) {
  const int64_t wanted = arguments.positive("num_paragraphs");
  const int64_t nth = arguments.positive("nth_paragraph");
  const std::string first_word = lower(arguments.text("first_word"));
  if (nth > wanted) {
    arguments.fail("nth_paragraph", std::to_string(nth), "at most num_paragraphs");
  }
  return [=](const std::string& response) {
    const std::vector<std::string_view> paragraphs = split_at(response, "\n\n");
    int64_t count = 0;
    for (const std::string_view paragraph : paragraphs) count += is_blank(paragraph) ? 0 : 1;
    if (nth > count || count != wanted) return false;
    // Blank pieces lower the count, but indices do not move.
    const std::string_view paragraph = paragraphs[static_cast<size_t>(nth - 1)];
    return !is_blank(paragraph) && first_word_of(paragraph) == first_word;
  };
}

IfevalCheck two_responses(const IfevalArguments&) {
  return [](const std::string& response) {
    const std::vector<std::string_view> pieces = split_at(response, "******");
    if (count_pieces(pieces) != 2) return false;
    const bool first_is_blank = is_blank(pieces.front());
    return strip(pieces[first_is_blank ? 1 : 0]) != strip(pieces[first_is_blank ? 2 : 1]);
  };
}

IfevalCheck number_placeholders(const IfevalArguments& arguments) {
  const auto wanted = static_cast<size_t>(arguments.positive("num_placeholders"));
  return [wanted](const std::string& response) {
    static const PythonRegex placeholder(R"(\[.*?\])");
    return placeholder.count(response) >= wanted;
  };
}

// The two usual markers may be written with spaces; any other is taken as a regular expression.
std::string postscript_pattern(const std::string& marker) {
  if (marker == "P.P.S") return R"(\s*p\.\s?p\.\s?s.*$)";
  if (marker == "P.S.") return R"(\s*p\.\s?s\..*$)";
  return R"(\s*)" + lower(marker) + ".*$";
}

IfevalCheck postscript(const IfevalArguments& arguments) {
  const std::string marker(strip(arguments.text("postscript_marker")));
  const auto pattern =
      std::make_shared<const PythonRegex>(postscript_pattern(marker), PythonRegexFlags{.multiline = true});
  return [pattern](const std::string& response) { return pattern->search(lower(response)); };
}

IfevalCheck number_bullet_lists(const IfevalArguments& arguments) {
  const auto wanted = static_cast<size_t>(arguments.positive("num_bullets"));
  return [wanted](const std::string& response) {
    // The white space before a bullet, and the character behind an asterisk, may be a line end.
    static const PythonRegex asterisks(R"(^\s*\*[^\*].*$)", {.multiline = true});
    static const PythonRegex hyphens(R"(^\s*-.*$)", {.multiline = true});
    return asterisks.count(response) + hyphens.count(response) == wanted;
  };
}

IfevalCheck constrained_response(const IfevalArguments&) {
  return [](const std::string& response) {
    static constexpr std::array<std::string_view, 3> kAnswers = {"My answer is yes.", "My answer is no.",
                                                                 "My answer is maybe."};
    for (const std::string_view answer : kAnswers) {
      if (response.find(answer) != std::string::npos) return true;
    }
    return false;
  };
}

// A span between double asterisks may count twice: once as such, and once by the inner pair.
IfevalCheck number_highlighted_sections(const IfevalArguments& arguments) {
  const int64_t wanted = arguments.positive("num_highlights");
  return [wanted](const std::string& response) {
    static const PythonRegex single(R"(\*[^\n\*]*\*)");
    static const PythonRegex twice(R"(\*\*[^\n\*]*\*\*)");
    int64_t count = 0;
    for (const PythonRegex* pattern : {&single, &twice}) {
      for (const TextRange& range : pattern->ranges(response)) {
        std::string_view span = std::string_view(response).substr(range.begin, range.end - range.begin);
        span = strip_right_character(strip_left_character(span, '*'), '*');
        count += is_blank(span) ? 0 : 1;
      }
    }
    return count >= wanted;
  };
}

IfevalCheck multiple_sections(const IfevalArguments& arguments) {
  const std::string splitter(strip(arguments.text("section_spliter")));  // the data's spelling
  const auto wanted = static_cast<size_t>(arguments.positive("num_sections"));
  const auto heading = std::make_shared<const PythonRegex>(R"(\s?)" + splitter + R"(\s?\d+\s?)");
  return [=](const std::string& response) { return heading->count(response) >= wanted; };
}

IfevalCheck json_format(const IfevalArguments&) {
  return [](const std::string& response) {
    std::string_view text = strip(response);
    for (const std::string_view fence : {"```json", "```Json", "```JSON", "```"}) {
      if (text.starts_with(fence)) text.remove_prefix(fence.size());
    }
    if (text.ends_with("```")) text.remove_suffix(3);
    return is_python_json(strip(text));
  };
}

IfevalCheck title(const IfevalArguments&) {
  return [](const std::string& response) {
    static const PythonRegex titles(R"(<<[^\n]+>>)");
    for (const TextRange& range : titles.ranges(response)) {
      const std::string_view text = std::string_view(response).substr(range.begin, range.end - range.begin);
      if (!is_blank(strip_right_character(strip_left_character(text, '<'), '>'))) return true;
    }
    return false;
  };
}

}  // namespace

std::vector<IfevalBuilder> ifeval_layout_builders() {
  return {
      {"combination:two_responses", two_responses},
      {"detectable_content:number_placeholders", number_placeholders},
      {"detectable_content:postscript", postscript},
      {"detectable_format:constrained_response", constrained_response},
      {"detectable_format:json_format", json_format},
      {"detectable_format:multiple_sections", multiple_sections},
      {"detectable_format:number_bullet_lists", number_bullet_lists},
      {"detectable_format:number_highlighted_sections", number_highlighted_sections},
      {"detectable_format:title", title},
      {"length_constraints:nth_paragraph_first_word", nth_paragraph_first_word},
      {"length_constraints:number_paragraphs", number_paragraphs},
  };
}

}  // namespace smoe
