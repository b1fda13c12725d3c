#include "smoe/core/table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "smoe/core/error.h"

namespace smoe {
namespace {

struct CodeRange {
  char32_t first;
  char32_t last;
};

// The ranges that occur in results and names, not the whole of Unicode's width table.
constexpr std::array kCombining = {CodeRange{0x0300, 0x036f}, CodeRange{0x1ab0, 0x1aff},
                                   CodeRange{0x20d0, 0x20ff}, CodeRange{0x200b, 0x200f},
                                   CodeRange{0xfe00, 0xfe0f}, CodeRange{0xfe20, 0xfe2f}};
constexpr std::array kWide = {CodeRange{0x1100, 0x115f},   CodeRange{0x2e80, 0xa4cf},
                              CodeRange{0xac00, 0xd7a3},   CodeRange{0xf900, 0xfaff},
                              CodeRange{0xfe30, 0xfe6f},   CodeRange{0xff00, 0xff60},
                              CodeRange{0xffe0, 0xffe6},   CodeRange{0x1f300, 0x1f64f},
                              CodeRange{0x1f900, 0x1faff}, CodeRange{0x20000, 0x3fffd}};

template <size_t N>
bool is_in(char32_t code, const std::array<CodeRange, N>& ranges) {
  return std::ranges::any_of(
      ranges, [&](const CodeRange& range) { return code >= range.first && code <= range.last; });
}

// Takes the first code point off `text`; a byte that does not start valid UTF-8 is taken alone.
char32_t take_code_point(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const size_t length = lead < 0x80           ? 1
                        : (lead >> 5) == 0x6  ? 2
                        : (lead >> 4) == 0xe  ? 3
                        : (lead >> 3) == 0x1e ? 4
                                              : 1;
  char32_t code = length == 1 ? lead : lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto next = i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    if ((next >> 6) != 0x2) {
      text.remove_prefix(1);
      return U'?';
    }
    code = (code << 6) | (next & 0x3fu);
  }
  text.remove_prefix(length);
  return code;
}

using Rows = std::vector<std::vector<std::string>>;

std::vector<size_t> column_widths(const std::vector<std::string>& header, const Rows& rows, size_t minimum) {
  std::vector<size_t> widths;
  for (const std::string& cell : header) widths.push_back(std::max(minimum, display_width(cell)));
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  return widths;
}

// " cell | cell " with the first column left-aligned.
std::string join_cells(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                       std::string_view border) {
  std::string line(border);
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - display_width(cells[i]), ' ');
    line += " " + (i == 0 ? cells[i] + padding : padding + cells[i]) + " ";
    line += border;
  }
  return line + "\n";
}

std::string rule(const std::vector<size_t>& widths, std::string_view left, std::string_view middle,
                 std::string_view right) {
  std::string line(left);
  for (size_t i = 0; i < widths.size(); ++i) {
    for (size_t j = 0; j < widths[i] + 2; ++j) line += "─";
    line += i + 1 < widths.size() ? middle : right;
  }
  return line + "\n";
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::vector<std::string> escape_markdown(std::vector<std::string> cells) {
  for (std::string& cell : cells) replace_all(cell, "|", "\\|");
  return cells;
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const char32_t code = take_code_point(text);
    width += is_in(code, kCombining) ? 0 : is_in(code, kWide) ? 2 : 1;
  }
  return width;
}

Table::Table(std::vector<std::string> header) : header_(std::move(header)) { SMOE_ASSERT(!header_.empty()); }

void Table::add_row(std::vector<std::string> cells) {
  SMOE_ASSERT(cells.size() <= header_.size());
  cells.resize(header_.size());
  for (std::string& cell : cells) std::ranges::replace(cell, '\n', ' ');
  rows_.push_back(std::move(cells));
}

void Table::add_separator() { rows_.emplace_back(); }

std::string Table::to_terminal() const {
  const std::vector<size_t> widths = column_widths(header_, rows_, 0);
  std::string text = rule(widths, "┌", "┬", "┐") + join_cells(header_, widths, "│");
  text += rule(widths, "├", "┼", "┤");
  for (const auto& row : rows_) {
    text += row.empty() ? rule(widths, "├", "┼", "┤") : join_cells(row, widths, "│");
  }
  return text + rule(widths, "└", "┴", "┘");
}

std::string Table::to_markdown() const {
  const std::vector<std::string> header = escape_markdown(header_);
  Rows rows;
  // Markdown has no line between rows.
  for (const auto& row : rows_) {
    if (!row.empty()) rows.push_back(escape_markdown(row));
  }
  const std::vector<size_t> widths = column_widths(header, rows, 3);
  std::string text = join_cells(header, widths, "|") + "|";
  for (size_t i = 0; i < widths.size(); ++i) {
    text += i == 0 ? " :" + std::string(widths[i] - 1, '-') + " |"
                   : " " + std::string(widths[i] - 1, '-') + ": |";
  }
  text += "\n";
  for (const auto& row : rows) text += join_cells(row, widths, "|");
  return text;
}

}  // namespace smoe
