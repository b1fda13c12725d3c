// A text with placeholders for the fields of a row: "Question: {question}\nAnswer:".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smoe/eval/rows.h"
#include "smoe/eval/task_config.h"

namespace smoe {

class TextTemplate {
 public:
  // Throws ConfigError (beginning with `where`) for unbalanced braces, an empty field or an unknown filter.
  TextTemplate(std::string_view text, const std::string& where);

  std::string render(const Row& row) const;

 private:
  struct Part {
    std::string text;  // literal text, or the path of a field
    bool is_field = false;
    std::vector<TextFilter> filters;
  };
  static Part parse_field(std::string_view inner, const std::string& where);

  std::vector<Part> parts_;
};

}  // namespace smoe
