// Line charts as inline SVG: no script and no other file; colours come from the page's style sheet, so that
// one chart fits a light and a dark page.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace smoe {

struct ChartSeries {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x ascending
  size_t color = 0;                               // class c0 ... c7 of the page
  size_t dash = 0;                                // 0 solid, 1 dashed, 2 dotted
  bool marks_only = false;                        // circles instead of a line
};

struct ChartOptions {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool starts_at_zero = false;  // the y axis
  int width = 720;              // of the drawing; the page scales it
  int height = 380;
};

// Drawings beyond this width have class `wide`, which gets larger letters on narrow screens.
inline constexpr int kNarrowChart = 600;

// Up to `count` round numbers that lie in [low, high], evenly spaced by 1, 2 or 5 times a power of ten.
std::vector<double> round_ticks(double low, double high, int count);

// A <figure> with the drawing and its legend. Series without points are left out; points that are not finite
// break the line. Without any point the figure says that there is nothing yet.
std::string line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options);

// Text for HTML, in content and in quoted attributes.
std::string html_escaped(const std::string& text);

}  // namespace smoe
