#include "smoe/eval/code_programs.h"

#include <fmt/format.h>

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {

Program humaneval_program(const Row& row, std::string_view completion) {
  return {ProgramLanguage::kPython, fmt::format("{}{}\n{}\ncheck({})", row.text("prompt"), completion,
                                                row.text("test"), row.text("entry_point"))};
}

Program mbpp_program(const Row& row, std::string_view completion) {
  return {ProgramLanguage::kPython,
          fmt::format("{}\n{}", completion, fmt::join(row.texts("test_list"), "\n"))};
}

Program multipl_e_program(const Row& row, std::string_view completion) {
  const std::string name = row.text("language");
  const std::optional<ProgramLanguage> language = language_from_name(name);
  SMOE_CHECK(DataError, language.has_value(),
             "{}: language '{}' cannot be run; allowed are java, python and swift. Remove the rows of other "
             "languages from the file",
             row.where(), name);
  return {*language, fmt::format("{}{}\n{}", row.text("prompt"),
                                 cut_at_first_stop(completion, row.texts("stop_tokens")), row.text("tests"))};
}

std::string_view cut_at_first_stop(std::string_view text, const std::vector<std::string>& stops) {
  size_t end = text.size();
  for (const std::string& stop : stops) {
    if (!stop.empty()) {
      end = std::min(end, text.find(stop));
    }
  }
  return text.substr(0, end);
}

}  // namespace smoe
