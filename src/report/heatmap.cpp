#include "smoe/report/heatmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "smoe/core/error.h"
#include "smoe/report/chart.h"

namespace smoe {
namespace {

constexpr int kShades = 12;  // beside the page's own colour; more could not be told apart
constexpr int kLeft = 60;
constexpr int kRight = 8;
constexpr int kTop = 14;
constexpr int kBottom = 40;
constexpr int kStripe = 6;
constexpr int kRowHeight = 18;

// -kShades ... kShades; 0 is not drawn.
int shade_of(double value, const HeatmapOptions& options) {
  const double share =
      options.diverging ? value / options.high : (value - options.low) / (options.high - options.low);
  return static_cast<int>(std::lround(std::clamp(share, options.diverging ? -1.0 : 0.0, 1.0) * kShades));
}

std::string shade_class(int shade) { return shade < 0 ? "heat less" : "heat"; }

double opacity(int shade) { return std::abs(shade) / static_cast<double>(kShades); }

// All cells of one shade as one path in units of cells: a report of many matrices stays small.
std::string cells(const Matrix& values, const HeatmapOptions& options) {
  std::array<std::string, 2 * kShades + 1> paths;
  for (size_t row = 0; row < values.size(); ++row) {
    for (size_t begin = 0, end = 0; begin < values[row].size(); begin = end) {
      const int shade = shade_of(values[row][begin], options);
      while (end < values[row].size() && shade_of(values[row][end], options) == shade) ++end;
      paths[static_cast<size_t>(shade + kShades)] +=
          fmt::format("M{} {}h{}v1h-{}z", begin, row, end - begin, end - begin);
    }
  }
  std::string svg;
  for (int shade = -kShades; shade <= kShades; ++shade) {
    const std::string& path = paths[static_cast<size_t>(shade + kShades)];
    if (shade == 0 || path.empty()) continue;
    svg += fmt::format("<path class=\"{}\" fill-opacity=\"{:.2f}\" d=\"{}\"/>", shade_class(shade),
                       opacity(shade), path);
  }
  return svg;
}

struct Place {
  double cell_width, cell_height;
  size_t rows, columns;
  double height() const { return kTop + cell_height * static_cast<double>(rows) + kBottom; }
};

// Runs of columns of one group, above the drawing and, where rows are the same things, left of it.
std::string stripes(const HeatmapOptions& options, const Place& place) {
  std::string svg;
  const std::vector<size_t>& groups = options.groups;
  for (size_t begin = 0, end = 0; begin < groups.size(); begin = end) {
    while (end < groups.size() && groups[end] == groups[begin]) ++end;
    const double width = place.cell_width * static_cast<double>(end - begin);
    const double from = place.cell_width * static_cast<double>(begin);
    const size_t color = groups[begin] % 8;
    svg += fmt::format("<rect class=\"c{}\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\"/>", color,
                       kLeft + from, kTop - kStripe - 2, width, kStripe);
    if (options.square) {
      svg += fmt::format("<rect class=\"c{}\" x=\"{}\" y=\"{:.2f}\" width=\"{}\" height=\"{:.2f}\"/>", color,
                         kLeft - kStripe - 2, kTop + from, kStripe, width);
    }
  }
  return svg;
}

std::string axes(const HeatmapOptions& options, const Place& place) {
  std::string svg;
  const double bottom = kTop + place.cell_height * static_cast<double>(place.rows);
  const double margin = options.square && !options.groups.empty() ? kStripe + 6 : 6;
  for (const double tick : round_ticks(0.0, static_cast<double>(place.columns) - 1.0, 8)) {
    if (tick != std::floor(tick)) continue;
    svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                       kLeft + (tick + 0.5) * place.cell_width, bottom + 15.0, static_cast<int64_t>(tick));
  }
  for (const double tick : round_ticks(0.0, static_cast<double>(place.rows) - 1.0, 8)) {
    if (tick != std::floor(tick)) continue;
    svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                       kLeft - margin, kTop + (tick + 0.5) * place.cell_height + 4.0,
                       static_cast<int64_t>(tick));
  }
  svg +=
      fmt::format("<text class=\"name\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                  (kLeft + options.width - kRight) / 2, place.height() - 6.0, html_escaped(options.x_label));
  svg += fmt::format(
      "<text class=\"name\" transform=\"translate(12 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
      (kTop + bottom) / 2.0, html_escaped(options.y_label));
  return svg;
}

std::string legend(const HeatmapOptions& options) {
  std::string html = "<figcaption>";
  for (size_t i = 0; i < options.group_names.size(); ++i) {
    html += fmt::format(
        "<span><svg width=\"12\" height=\"12\" aria-hidden=\"true\"><rect class=\"c{}\" width=\"12\" "
        "height=\"12\"/></svg>{}</span> ",
        i % 8, html_escaped(options.group_names[i]));
  }
  if (!options.has_scale) return html + "</figcaption>";
  const int first = options.diverging ? -kShades : 0;
  std::string scale;
  for (int shade = first; shade <= kShades; ++shade) {
    scale += fmt::format("<rect class=\"{}\" fill-opacity=\"{:.2f}\" x=\"{}\" width=\"7\" height=\"12\"/>",
                         shade_class(shade), opacity(shade), 7 * (shade - first));
  }
  const int width = 7 * (kShades - first + 1);
  return html + fmt::format(
                    "<span>{} {:.3f}<svg class=\"scale\" width=\"{}\" height=\"12\" "
                    "aria-hidden=\"true\">{}</svg>{:.3f}</span></figcaption>",
                    html_escaped(options.value_name), options.diverging ? -options.high : options.low, width,
                    scale, options.high);
}

}  // namespace

std::string heatmap(const Matrix& values, const HeatmapOptions& given) {
  SMOE_ASSERT(!values.empty() && !values.front().empty());
  HeatmapOptions options = given;
  // Where all values are alike there is no scale to divide by; they are all as pale as can be.
  if (options.high <= (options.diverging ? 0.0 : options.low)) {
    options.high = (options.diverging ? 0.0 : options.low) + 1e-9;
  }
  Place place{0.0, kRowHeight, values.size(), values.front().size()};
  place.cell_width = (options.width - kLeft - kRight) / static_cast<double>(place.columns);
  if (options.square) place.cell_height = place.cell_width;
  // Models with many layers get lower rows rather than an endless figure.
  if (!options.square)
    place.cell_height = std::min<double>(kRowHeight, 400.0 / static_cast<double>(place.rows));
  const std::string title = html_escaped(options.title);
  return fmt::format(
      "<figure class=\"chart{13}\"><h3>{0}</h3><svg viewBox=\"0 0 {1} {2:.0f}\" role=\"img\" "
      "aria-label=\"{0}\">"
      "<rect class=\"cells\" x=\"{3}\" y=\"{4}\" width=\"{5:.2f}\" height=\"{6:.2f}\"/>"
      "<g shape-rendering=\"crispEdges\" transform=\"translate({3} {4}) scale({7:.5f} {8:.5f})\">{9}</g>"
      "{10}{11}</svg>{12}</figure>\n",
      title, options.width, place.height(), kLeft, kTop,
      place.cell_width * static_cast<double>(place.columns),
      place.cell_height * static_cast<double>(place.rows), place.cell_width, place.cell_height,
      cells(values, options), stripes(options, place), axes(options, place), legend(options),
      options.width > kNarrowChart ? " wide" : "");
}

}  // namespace smoe
