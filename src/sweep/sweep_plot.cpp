#include <algorithm>
#include <charconv>
#include <cmath>

#include "smoe/core/error.h"
#include "smoe/core/gnuplot.h"
#include "smoe/sweep/sweep_table.h"

namespace smoe {
namespace {

std::optional<double> number_in(const std::string& text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Where rows stand on the x axis, and which of them are joined by a line.
struct PlotLayout {
  bool has_axis = false;
  std::vector<double> x;            // a row
  std::vector<std::string> series;  // a row: rows of one series are joined
  std::string ticks;                // of gnuplot, for rows without an axis
  std::string axis_label;
};

// The name of a row without the value of its axis.
std::string series_of(const SweepTableRow& row) {
  const AxisValue& value = row.axis_values.front();
  const std::string part = value.axis + "=" + value.label;
  std::string name = row.name;
  const size_t at = name.find(part);
  SMOE_ASSERT(at != std::string::npos);
  const size_t begin = at > 0 ? at - 1 : 0;
  return name.erase(begin, at + part.size() - begin);
}

PlotLayout make_layout(const SweepTable& table) {
  PlotLayout layout;
  layout.has_axis = !table.rows.empty() && std::ranges::all_of(table.rows, [](const SweepTableRow& row) {
    return row.axis_values.size() == 1 && number_in(row.axis_values.front().label);
  });
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const SweepTableRow& row = table.rows[i];
    if (layout.has_axis) {
      layout.x.push_back(*number_in(row.axis_values.front().label));
      layout.series.push_back(series_of(row));
      layout.axis_label = row.axis_values.front().axis;
    } else {
      layout.x.push_back(static_cast<double>(i));
      layout.series.push_back("");
      layout.ticks += fmt::format("{}{} {}", i == 0 ? "" : ", ", gnuplot_quoted(row.name), i);
    }
  }
  return layout;
}

// A data block with x, mean and spread of every row of a series that has a value.
std::string data_block(const SweepTable& table, const PlotLayout& layout, const std::string& series,
                       size_t column, double shift) {
  std::string text;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const SweepCell& cell = table.rows[i].cells[column];
    if (layout.series[i] != series || cell.empty()) continue;
    const MeanAndSpread statistics = mean_and_spread(cell);
    const double scale = table.columns[column].unit == MetricUnit::kShare ? 100.0 : 1.0;
    text +=
        fmt::format("{} {} {}\n", layout.x[i] + shift, scale * statistics.mean, scale * statistics.spread);
  }
  return text;
}

}  // namespace

void plot_table(const SweepTable& table, const std::filesystem::path& out) {
  SMOE_CHECK(DataError, !table.columns.empty(), "there is nothing to plot: no run has finished yet");
  const PlotLayout layout = make_layout(table);
  std::vector<std::string> all_series;
  for (const std::string& name : layout.series) {
    if (std::ranges::find(all_series, name) == all_series.end()) all_series.push_back(name);
  }
  std::string blocks, panels;
  size_t num_blocks = 0;
  int num_panels = 0;
  for (size_t first = 0; first < table.columns.size();) {
    size_t end = first;
    while (end < table.columns.size() && table.columns[end].metric == table.columns[first].metric) ++end;
    std::string plots;
    for (size_t column = first; column < end; ++column) {
      for (size_t series = 0; series < all_series.size(); ++series) {
        // Points of the budgets of one row stand side by side.
        const double shift =
            layout.has_axis
                ? 0.0
                : 0.12 * (static_cast<double>(column - first) - 0.5 * static_cast<double>(end - first - 1));
        const std::string data = data_block(table, layout, all_series[series], column, shift);
        if (data.empty()) continue;
        blocks += fmt::format("$block{} << EOD\n{}EOD\n", num_blocks, data);
        const std::string title =
            table.columns[column].budget + (all_series[series].empty() ? "" : " " + all_series[series]);
        plots += fmt::format("{}$block{} using 1:2:3 with {} lw 2 pt {} lc rgb {} title {}",
                             plots.empty() ? "plot " : ", ", num_blocks,
                             layout.has_axis ? "yerrorlines" : "yerrorbars", 7 - 2 * (series % 3),
                             gnuplot_color(column - first), gnuplot_quoted(title));
        ++num_blocks;
      }
    }
    const bool is_share = table.columns[first].unit == MetricUnit::kShare;
    panels += fmt::format("set title {}\n{}\n",
                          gnuplot_quoted(table.columns[first].metric + (is_share ? ", %" : "")), plots);
    ++num_panels;
    first = end;
  }
  std::string script = blocks + fmt::format(
                                    "set multiplot layout {},1\nset grid lc rgb '#dddddd'\n"
                                    "set key outside right top\nset offsets graph 0.05, 0.05, 0.1, 0.1\n",
                                    num_panels);
  script += layout.has_axis ? fmt::format("set xlabel {}\n", gnuplot_quoted(layout.axis_label))
                            : fmt::format("set xtics ({}) rotate by -25\nset xrange [-0.5:{}.5]\n",
                                          layout.ticks, table.rows.size() - 1);
  // Names of rows hang below the panels.
  size_t longest = 0;
  for (const SweepTableRow& row : table.rows) longest = std::max(longest, row.name.size());
  const int names_height = layout.has_axis ? 0 : 4 * static_cast<int>(std::min<size_t>(longest, 60));
  write_gnuplot(out, script + panels + "unset multiplot\n", {900, 60 + (320 + names_height) * num_panels});
}

}  // namespace smoe
