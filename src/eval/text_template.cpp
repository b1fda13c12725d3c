#include "smoe/eval/text_template.h"

#include <fmt/ranges.h>

#include "smoe/core/error.h"
#include "smoe/eval/text_filters.h"

namespace smoe {

TextTemplate::TextTemplate(std::string_view text, const std::string& where) {
  std::string literal;
  const auto flush = [&] {
    if (!literal.empty()) parts_.push_back({std::exchange(literal, {}), false, {}});
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '{' && c != '}') {
      literal.push_back(c);
    } else if (i + 1 < text.size() && text[i + 1] == c) {
      literal.push_back(c);
      ++i;
    } else {
      const size_t close = text.find('}', i);
      SMOE_CHECK(ConfigError, c == '{' && close != std::string_view::npos,
                 "{}: unbalanced `{}` in the template `{}`; write {{field}}, or {{{{ and }}}} for braces",
                 where, c, text);
      flush();
      parts_.push_back(parse_field(text.substr(i + 1, close - i - 1), where));
      i = close;
    }
  }
  flush();
}

TextTemplate::Part TextTemplate::parse_field(std::string_view inner, const std::string& where) {
  Part part;
  part.is_field = true;
  bool first = true;
  for (size_t begin = 0; begin <= inner.size();) {
    const size_t end = std::min(inner.find('|', begin), inner.size());
    const std::string_view word = inner.substr(begin, end - begin);
    begin = end + 1;
    if (std::exchange(first, false)) {
      part.text = word;
      continue;
    }
    const std::optional<TextFilter> filter = enum_from_name<TextFilter>(word);
    SMOE_CHECK(ConfigError, filter.has_value(), "{}: unknown text filter `{}` in {{{}}}; filters: {}", where,
               word, inner, fmt::join(detail::enum_name_list<TextFilter>(), ", "));
    part.filters.push_back(*filter);
  }
  SMOE_CHECK(ConfigError, !part.text.empty(), "{}: a placeholder without a field, {{{}}}", where, inner);
  return part;
}

std::string TextTemplate::render(const Row& row) const {
  std::string result;
  for (const Part& part : parts_) {
    result += part.is_field ? apply_text_filters(part.filters, row.text(part.text)) : part.text;
  }
  return result;
}

}  // namespace smoe
