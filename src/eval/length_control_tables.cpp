// Reads the comma-separated tables that AlpacaEval publishes. Their fields hold numbers and names without
// commas or quotes.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/eval/length_controlled.h"

namespace smoe {
namespace {

class NumberTable {
 public:
  explicit NumberTable(const std::filesystem::path& file) : file_(file.string()) {
    const std::string bytes = read_file(file);
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t end = std::min(bytes.find('\n', begin), bytes.size());
      std::string_view line = std::string_view(bytes).substr(begin, end - begin);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.empty() || lines_.empty()) lines_.push_back(split(line));
      begin = end + 1;
    }
    SMOE_CHECK(DataError, lines_.size() > 1, "{}: expected a header and rows of comma-separated values",
               file_);
  }

  int64_t num_rows() const { return std::ssize(lines_) - 1; }

  // The column called `name`; throws with the names there are.
  std::vector<double> column(const std::string& name) const {
    const auto found = std::ranges::find(lines_[0], name);
    SMOE_CHECK(DataError, found != lines_[0].end(), "{}:1: no column `{}`; the columns are: {}", file_, name,
               fmt::join(lines_[0], ", "));
    return column(static_cast<size_t>(found - lines_[0].begin()));
  }

  std::vector<double> column(size_t index) const {
    std::vector<double> values;
    for (size_t row = 1; row < lines_.size(); ++row) {
      SMOE_CHECK(DataError, index < lines_[row].size(), "{}:{}: {} columns; expected {}", file_, row + 1,
                 lines_[row].size(), lines_[0].size());
      values.push_back(number(lines_[row][index], row + 1));
    }
    return values;
  }

  std::string where(int64_t row) const { return fmt::format("{}:{}", file_, row + 2); }

 private:
  static std::vector<std::string> split(std::string_view line) {
    std::vector<std::string> fields;
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find(',', begin), line.size());
      fields.emplace_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    return fields;
  }

  double number(const std::string& text, size_t line) const {
    if (text.empty()) return std::numeric_limits<double>::quiet_NaN();
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    SMOE_CHECK(DataError, error == std::errc() && end == text.data() + text.size(),
               "{}:{}: '{}' is no number", file_, line, text);
    return value;
  }

  std::string file_;
  std::vector<std::vector<std::string>> lines_;
};

// Difficulty by position; the first row of a position counts.
std::vector<double> difficulties(const NumberTable& table, const std::vector<double>& positions,
                                 const std::vector<double>& values) {
  std::vector<double> by_position;
  for (size_t i = 0; i < positions.size(); ++i) {
    SMOE_CHECK(
        DataError, positions[i] >= 0.0 && positions[i] < 1e6 && positions[i] == std::floor(positions[i]),
        "{}: position {} of an instruction; expected a whole number from 0", table.where(i), positions[i]);
    const auto position = static_cast<size_t>(positions[i]);
    if (position >= by_position.size()) {
      by_position.resize(position + 1, std::numeric_limits<double>::quiet_NaN());
    }
    if (std::isnan(by_position[position])) by_position[position] = values[i];
  }
  return by_position;
}

}  // namespace

LengthControlData read_length_control_data(const std::filesystem::path& difficulty_file,
                                           const std::filesystem::path& gamed_file) {
  LengthControlData data;
  if (!gamed_file.empty()) {
    const NumberTable table(gamed_file);
    const std::vector<double> preference = table.column("preference");
    const std::vector<double> length = table.column("std_delta_len");
    const std::vector<double> difficulty = table.column("instruction_difficulty");
    data.difficulty = difficulties(table, table.column("index"), difficulty);
    data.gamed.emplace();
    for (int64_t i = 0; i < table.num_rows(); ++i) {
      if (std::isnan(preference[i])) continue;
      SMOE_CHECK(DataError,
                 preference[i] >= 0.0 && preference[i] <= 1.0 && std::isfinite(length[i]) &&
                     std::isfinite(difficulty[i]),
                 "{}: expected a preference from 0 to 1, a length and a difficulty", table.where(i));
      data.gamed->preference.push_back(preference[i]);
      data.gamed->length_feature.push_back(length[i]);
      data.gamed->difficulty.push_back(difficulty[i]);
    }
  }
  if (!difficulty_file.empty()) {
    const NumberTable table(difficulty_file);
    // The column of positions has no name in the published file.
    data.difficulty = difficulties(table, table.column(size_t{0}), table.column("instruction_difficulty"));
  }
  return data;
}

}  // namespace smoe
