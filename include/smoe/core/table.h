// Text tables for the terminal and for Markdown, aligned by display width.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smoe {

// The columns that UTF-8 text takes on a terminal: combining marks 0, East Asian wide characters and
// emoji 2, everything else 1. A byte that is not UTF-8 counts as one column.
size_t display_width(std::string_view text);

class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // Adds a row; missing cells are empty, extra ones are an internal error.
  void add_row(std::vector<std::string> cells);
  // A line between the rows added before and after.
  void add_separator();
  // Box-drawing borders; the first column left-aligned, the others right-aligned.
  std::string to_terminal() const;
  // GitHub-flavoured Markdown with the same alignment.
  std::string to_markdown() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a separator
};

}  // namespace smoe
