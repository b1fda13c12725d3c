// Matrices as inline SVG: shades of one colour of the page's style sheet, so that one drawing fits a light
// and a dark page.
#pragma once

#include <string>
#include <vector>

namespace smoe {

using Matrix = std::vector<std::vector<double>>;  // rows of equal length

struct HeatmapOptions {
  std::string title;
  std::string x_label;
  std::string y_label;
  // Values that get the palest and the strongest shade; those beyond them are drawn like them. With
  // `diverging` the scale runs from -high over 0 to high, in two colours.
  double low = 0.0;
  double high = 1.0;
  bool diverging = false;
  bool square = false;     // as high as wide
  bool has_scale = true;   // a legend of the shades
  std::string value_name;  // of the legend
  // One a column: coloured stripes at the edges show to which group a column (and, in a square drawing, a
  // row) belongs. The colour of a group is its place in `group_names`.
  std::vector<size_t> groups;
  std::vector<std::string> group_names;
  int width = 460;  // of the drawing; the page scales it
};

// A <figure> with the drawing and its legend. `values` must have a row and a column.
std::string heatmap(const Matrix& values, const HeatmapOptions& options);

}  // namespace smoe
